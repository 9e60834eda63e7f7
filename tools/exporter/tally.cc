#include "tools/exporter/tally.h"

#include <algorithm>
#include <set>

namespace tools {
namespace {

bool is_daemon(const emu::PageContent& page) {
  return page.process == "fabricd" || page.process.starts_with("hcad-");
}

}  // namespace

std::vector<std::uint64_t> stored_words(const emu::SeriesValue& series) {
  switch (series.kind) {
    case emu::MetricKind::counter:
      return {series.raw};
    case emu::MetricKind::gauge:
      return {};
    case emu::MetricKind::histogram:
      return series.words;
  }
  return {};
}

void add_words(std::vector<std::uint64_t>& to, const std::vector<std::uint64_t>& words) {
  to.resize(std::max(to.size(), words.size()));
  for (std::size_t i = 0; i < words.size(); ++i) to[i] += words[i];
}

void Tally::take(Writer& writer, const emu::PageContent& page) {
  for (const emu::SeriesValue& series : page.series) {
    if (auto words = stored_words(series); !words.empty()) {
      writer.counts[{series.name, series.labels}] = std::move(words);
    }
  }
}

// Another may have its name by now.
void Tally::hold(Writer& writer, const std::string& path) {
  if (held_ >= kPagesHeldMax) return;
  emu::UniqueFd page = emu::open_page(path);
  if (!page) return;
  const auto read = emu::read_page(page.get(), path);
  if (!read || read->pid != writer.pid || read->start_unix_ns != writer.start_unix_ns) return;
  writer.page = std::move(page);
  ++held_;
}

void Tally::end(Writer& writer) {
  if (writer.page) {
    if (const auto last = emu::read_page(writer.page.get(), "")) take(writer, *last);
    writer.page = {};
    --held_;
  }
  for (const auto& [series, words] : writer.counts) add_words(ended_[series], words);
  writer.counts.clear();
}

void Tally::look(const std::vector<emu::PageContent>& pages) {
  std::set<std::string> there;
  for (const emu::PageContent& page : pages) {
    if (is_daemon(page)) continue;
    there.insert(page.path);
    const auto [found, fresh] = writers_.try_emplace(page.path);
    Writer& writer = found->second;
    const bool known =
        !fresh && writer.pid == page.pid && writer.start_unix_ns == page.start_unix_ns;
    const bool counts = page.alive || page.finished;
    if (known && !counts && writer.counts.empty()) continue;  // killed; it has ended for us
    if (!known) {
      end(writer);
      writer.pid = page.pid;
      writer.start_unix_ns = page.start_unix_ns;
      if (page.alive) hold(writer, page.path);
    }
    take(writer, page);
    if (!counts) end(writer);
  }
  for (auto it = writers_.begin(); it != writers_.end();) {
    if (!there.contains(it->first)) end(it->second);
    it = there.contains(it->first) ? std::next(it) : writers_.erase(it);
  }
}

}  // namespace tools
