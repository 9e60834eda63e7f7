#include "emu/base/json_line.h"

#include <cctype>
#include <cmath>
#include <optional>

namespace emu {

namespace {

constexpr std::size_t kLineMax = 4096;

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  void spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(char c) {
    spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool done() {
    spaces();
    return at_ == text_.size();
  }
  std::optional<std::string> quoted() {
    if (!take('"')) return std::nullopt;
    std::string value;
    while (at_ < text_.size()) {
      char c = text_[at_++];
      if (c == '"') return value;
      if (static_cast<unsigned char>(c) < 0x20) return std::nullopt;
      if (c == '\\') {
        if (at_ == text_.size()) return std::nullopt;
        c = text_[at_++];
        if (c == 'n')
          c = '\n';
        else if (c == 't')
          c = '\t';
        else if (c != '"' && c != '\\' && c != '/')
          return std::nullopt;
      }
      value.push_back(c);
    }
    return std::nullopt;
  }
  std::optional<std::string> scalar() {
    spaces();
    if (at_ < text_.size() && text_[at_] == '"') return quoted();
    std::string value;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  std::string_view("+-.").contains(text_[at_]))) {
      value.push_back(text_[at_++]);
    }
    if (value.empty()) return std::nullopt;
    return value;
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

std::string escaped(std::string_view value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out.push_back('\\');
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

}  // namespace

Result<std::map<std::string, std::string>> parse_json_line(std::string_view line) {
  if (line.size() > kLineMax) return fail("a request has at most {} bytes", kLineMax);
  Reader reader(line);
  std::map<std::string, std::string> fields;
  if (!reader.take('{')) return fail("not a JSON object");
  for (bool first = true; !reader.take('}'); first = false) {
    if (!first && !reader.take(',')) return fail("not a flat JSON object");
    auto key = reader.quoted();
    if (!key || !reader.take(':')) return fail("not a flat JSON object");
    auto value = reader.scalar();
    if (!value) return fail("value of '{}' is not a string, number or literal", *key);
    if (!fields.emplace(*key, *value).second) return fail("'{}' is given twice", *key);
  }
  if (!reader.done()) return fail("text after the JSON object");
  return fields;
}

void JsonWriter::name(std::string_view key) {
  if (!text_.empty() && text_.back() != '{' && text_.back() != '[') text_.push_back(',');
  if (key.empty()) return;
  text_ += escaped(key);
  text_.push_back(':');
}
JsonWriter& JsonWriter::begin(std::string_view key, char bracket) {
  name(key);
  text_.push_back(bracket);
  return *this;
}
JsonWriter& JsonWriter::end(char bracket) {
  text_.push_back(bracket);
  return *this;
}
JsonWriter& JsonWriter::field(std::string_view key, std::string_view value) {
  name(key);
  text_ += escaped(value);
  return *this;
}
JsonWriter& JsonWriter::field(std::string_view key, bool value) {
  name(key);
  text_ += value ? "true" : "false";
  return *this;
}
JsonWriter& JsonWriter::field(std::string_view key, double value) {
  name(key);
  text_ += std::isfinite(value) ? fmt::format("{}", value) : "null";
  return *this;
}
JsonWriter& JsonWriter::field(std::string_view key, std::uint64_t value) {
  name(key);
  text_ += std::to_string(value);
  return *this;
}
JsonWriter& JsonWriter::field(std::string_view key, std::int64_t value) {
  name(key);
  text_ += std::to_string(value);
  return *this;
}

}  // namespace emu
