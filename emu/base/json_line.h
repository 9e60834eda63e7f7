// JSON as the control sockets speak it: one flat object in a line comes in, any object goes out.
// Called by the daemons' control; not for the hot path.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "emu/base/result.h"

namespace emu {

// Keys and values of a flat JSON object; strings without their quotes, numbers and literals as
// they stand. Nested values, duplicate keys and trailing text are errors. At most 4096 bytes.
Result<std::map<std::string, std::string>> parse_json_line(std::string_view line);

// Builds one value piece by piece:  JsonWriter j; j.open(); j.field("a", 1); j.close(); j.text()
class JsonWriter {
 public:
  JsonWriter& open(std::string_view key = {}) { return begin(key, '{'); }
  JsonWriter& close() { return end('}'); }
  JsonWriter& open_array(std::string_view key = {}) { return begin(key, '['); }
  JsonWriter& close_array() { return end(']'); }
  JsonWriter& field(std::string_view key, std::string_view value);
  JsonWriter& field(std::string_view key, const char* value) {
    return field(key, std::string_view(value));
  }
  JsonWriter& field(std::string_view key, bool value);
  JsonWriter& field(std::string_view key, double value);
  JsonWriter& field(std::string_view key, std::uint64_t value);
  JsonWriter& field(std::string_view key, std::int64_t value);
  JsonWriter& field(std::string_view key, int value) {
    return field(key, static_cast<std::int64_t>(value));
  }
  JsonWriter& field(std::string_view key, unsigned value) {
    return field(key, static_cast<std::uint64_t>(value));
  }
  const std::string& text() const { return text_; }

 private:
  JsonWriter& begin(std::string_view key, char bracket);
  JsonWriter& end(char bracket);
  void name(std::string_view key);  // empty inside arrays

  std::string text_;
};

}  // namespace emu
