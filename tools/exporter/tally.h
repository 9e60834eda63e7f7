// Counts of programs that outlive them. A generator of load takes its page away at its end, another
// of the same node and kind counts from 0: what is exported of both never falls, as long as the
// exporter lives. Daemons are no such programs: each has its series to itself, and its start is the
// reset that Prometheus knows.
//
// In: the pages of a run directory, each time somebody looks, and their files, which are held open:
// what a program counts between the last look and its end stands there, though the name is gone.
// Out: what is to be added to a series.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "emu/metrics/read.h"

namespace tools {

using Labels = std::vector<std::pair<std::string, std::string>>;
using SeriesKey = std::pair<std::string, Labels>;  // name and labels

// A counter's value or a histogram's words as they are stored; nothing of a gauge.
std::vector<std::uint64_t> stored_words(const emu::SeriesValue& series);
// Adds them, word by word.
void add_words(std::vector<std::uint64_t>& to, const std::vector<std::uint64_t>& words);

class Tally {
 public:
  // Must hear of pages in the order in which they were read.
  void look(const std::vector<emu::PageContent>& pages);
  // What ended programs counted, in series that no page holds any more, or that of a killed one.
  // Valid until look().
  using Counts = std::map<SeriesKey, std::vector<std::uint64_t>>;
  const Counts& ended() const { return ended_; }

 private:
  struct Writer {
    std::uint32_t pid = 0;
    std::uint64_t start_unix_ns = 0;
    Counts counts;  // when we last looked
    emu::UniqueFd page;
  };
  // As many pages are held open; of programs beyond that the last second is missed.
  static constexpr std::size_t kPagesHeldMax = 256;

  static void take(Writer& writer, const emu::PageContent& page);
  void hold(Writer& writer, const std::string& path);
  void end(Writer& writer);

  std::map<std::string, Writer> writers_;  // by path of their page
  std::size_t held_ = 0;                   // pages
  Counts ended_;
};

}  // namespace tools
