// Books against a plain model under random probes, refusals, releases and deaths; weights by hand.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "emu/base/prng.h"
#include "fabric/admit/admission.h"
#include "fabric/admit/weights.h"
#include "tests/unit/sanitized.h"

namespace {

using emu::kNoRouter;
using emu::Prng;
using fabric::Admission;
using fabric::Book;
using fabric::BookLimits;
using fabric::BookResult;
using fabric::ProbeState;

std::uint64_t fresh_seed() {
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

constexpr std::uint64_t kMbps = 1'000'000;

BookLimits without_power(std::uint64_t link_mbps = 400) {
  return {.link_bps = link_mbps * kMbps, .power_control = false};
}

TEST(Book, RefusesWhatALinkCannotCarry) {
  Book book(8, without_power());
  EXPECT_EQ(book.book({0, 1}, 0, 7, {300 * kMbps}), BookResult::booked);
  EXPECT_EQ(book.book({1, 1}, 1, 7, {101 * kMbps}), BookResult::output_link);
  EXPECT_EQ(book.book({0, 2}, 0, 6, {101 * kMbps}), BookResult::input_link);
  EXPECT_EQ(book.book({1, 1}, 1, 7, {100 * kMbps}), BookResult::booked);  // exactly full
  EXPECT_EQ(book.used_out_bps(7), 400 * kMbps);
  EXPECT_EQ(book.used_in_bps(0), 300 * kMbps);
  EXPECT_TRUE(book.release({0, 1}));
  EXPECT_FALSE(book.release({0, 1}));
  EXPECT_EQ(book.used_out_bps(7), 100 * kMbps);
}

TEST(Book, RepeatsChangeNothing) {
  Book book(8, without_power());
  EXPECT_EQ(book.book({0, 1}, 0, 7, {300 * kMbps, 350 * kMbps, 4}), BookResult::booked);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(book.book({0, 1}, 0, 7, {300 * kMbps, 350 * kMbps, 4}), BookResult::already);
  }
  EXPECT_EQ(book.used_out_bps(7), 300 * kMbps);
  EXPECT_EQ(book.peak_out_bps(7), 350 * kMbps);
  EXPECT_EQ(book.lane_out_bps(7, 4), 300 * kMbps);
  EXPECT_EQ(book.bookings(), 1u);
}

TEST(Book, AnotherDemandReplacesIfThereIsRoom) {
  Book book(8, without_power());
  EXPECT_EQ(book.book({0, 1}, 0, 7, {300 * kMbps}), BookResult::booked);
  EXPECT_EQ(book.book({0, 1}, 0, 7, {400 * kMbps}), BookResult::booked);
  EXPECT_EQ(book.used_out_bps(7), 400 * kMbps);
  EXPECT_EQ(book.book({0, 1}, 0, 7, {401 * kMbps}), BookResult::output_link);
  EXPECT_EQ(book.used_out_bps(7), 400 * kMbps);                          // the old one stays
  EXPECT_EQ(book.book({0, 1}, 0, 6, {10 * kMbps}), BookResult::booked);  // another path
  EXPECT_EQ(book.used_out_bps(7), 0u);
  EXPECT_EQ(book.used_in_bps(0), 10 * kMbps);
}

// 190.97586 pJ, 128-bit flits: 100 Mb/s need 149.2 uW; 300 uW are two such connections.
TEST(Book, PowerIsBookedByTheMeanRate) {
  Book book(8, {.power_w = 300e-6, .router_flit_pj = 190.97586, .flit_bits = 128});
  EXPECT_EQ(book.book({0, 1}, 0, 4, {100 * kMbps}), BookResult::booked);
  EXPECT_NEAR(book.used_power_w(), 149.2e-6, 0.1e-6);
  EXPECT_EQ(book.book({1, 1}, 1, 5, {100 * kMbps, 300 * kMbps}), BookResult::booked);
  EXPECT_EQ(book.book({2, 1}, 2, 6, {10 * kMbps}), BookResult::power);
  EXPECT_TRUE(book.release({0, 1}));
  EXPECT_EQ(book.book({2, 1}, 2, 6, {10 * kMbps}), BookResult::booked);
}

TEST(Book, PowerBudgetMayBeFilledExactly) {
  const double flit_pj = 190.97586;
  Book book(8, {.power_w = flit_pj * 1e-12 * 3e8 / 128, .router_flit_pj = flit_pj});
  EXPECT_EQ(book.book({0, 1}, 0, 4, {100 * kMbps}), BookResult::booked);
  EXPECT_EQ(book.book({0, 2}, 0, 4, {100 * kMbps}), BookResult::booked);
  EXPECT_EQ(book.book({0, 3}, 0, 4, {100 * kMbps}), BookResult::booked);
  EXPECT_EQ(book.book({0, 4}, 0, 4, {kMbps}), BookResult::power);
  book.set_power_control(false);
  EXPECT_EQ(book.book({0, 4}, 0, 4, {kMbps}), BookResult::booked);
  book.set_power_control(true);
  EXPECT_EQ(book.book({0, 5}, 0, 4, {kMbps}), BookResult::power) << "the one before still counts";
}

// With a link behind, E_link is booked too; towards an HCA there is none. 128 bits at 10.21 pJ.
TEST(Book, PowerOfTheLinkBehindIsBooked) {
  const double link_pj = 10.21 * 128;
  Book book(8, {.power_w = 2e-3, .router_flit_pj = 190.97586, .link_flit_pj = link_pj});
  book.set_router_ports(0b1100'0000);
  EXPECT_EQ(book.book({0, 1}, 0, 4, {100 * kMbps}), BookResult::booked);
  EXPECT_NEAR(book.used_power_w(), 149.2e-6, 0.1e-6);
  EXPECT_EQ(book.book({0, 2}, 0, 7, {100 * kMbps}), BookResult::booked);
  EXPECT_NEAR(book.used_power_w(), 2 * 149.2e-6 + 1021e-6, 0.2e-6);
  EXPECT_EQ(book.book({0, 3}, 0, 6, {100 * kMbps}), BookResult::power);
  EXPECT_EQ(book.book({0, 3}, 0, 5, {100 * kMbps}), BookResult::booked);
  EXPECT_TRUE(book.release({0, 2}));
  EXPECT_NEAR(book.used_power_w(), 2 * 149.2e-6, 0.1e-6);
}

// What comes from an HCA books that HCA's flits, and what goes to one.
TEST(Book, PowerOfHcasIsBooked) {
  Book book(8, {.power_w = 2e-3, .router_flit_pj = 0, .hca_flit_pj = 128});
  book.set_router_ports(0b1100'0000);
  EXPECT_EQ(book.book({0, 1}, 0, 4, {100 * kMbps}), BookResult::booked);
  EXPECT_NEAR(book.used_power_w(), 200e-6, 1e-12);
  EXPECT_EQ(book.book({0, 2}, 1, 7, {100 * kMbps}), BookResult::booked);
  EXPECT_EQ(book.book({0, 3}, 6, 7, {100 * kMbps}), BookResult::booked);
  EXPECT_NEAR(book.used_power_w(), 300e-6, 1e-12);
  EXPECT_TRUE(book.release({0, 1}));
  EXPECT_NEAR(book.used_power_w(), 100e-6, 1e-12);
}

TEST(Book, HostileDemands) {
  Book book(2, without_power());
  EXPECT_EQ(book.book({0, 1}, 0, 1, {0}), BookResult::table);
  EXPECT_EQ(book.book({0, 1}, 0, 1, {~std::uint64_t{0}, ~std::uint64_t{0}}),
            BookResult::output_link);
  EXPECT_EQ(book.book({0, 1}, 0, 1, {1, 1, 16}), BookResult::table);
  EXPECT_EQ(book.book({9999, 1}, 0, 1, {1}), BookResult::table);
  EXPECT_EQ(book.book({0, 1}, 0, 1, {1, ~std::uint64_t{0}}), BookResult::booked);
  EXPECT_EQ(book.peak_out_bps(1), 400 * kMbps);  // no peak above the link
  for (std::uint64_t id = 2; id <= fabric::kBookingsPerNodeMax; ++id) {
    ASSERT_EQ(book.book({0, id}, 0, 1, {1}), BookResult::booked);
  }
  EXPECT_EQ(book.book({0, 99'999}, 0, 1, {1}), BookResult::table);
  EXPECT_EQ(book.book({1, 1}, 1, 0, {1}), BookResult::booked);  // other nodes are not touched
  EXPECT_EQ(book.release_node(0), fabric::kBookingsPerNodeMax);
  EXPECT_EQ(book.used_out_bps(1), 0u);
}

// A line of three routers: port 0 towards lower, 1 towards higher, 2 … 4 HCAs.
struct Line {
  static constexpr int kRouters = 3;
  static constexpr int kHcas = 3;
  Admission admission;

  explicit Line(const BookLimits& limits)
      : admission(std::vector<int>(kRouters, 2 + kHcas), limits, true) {}

  struct Hop {
    emu::RouterId router;
    emu::PortId in, out;
  };
  static std::vector<Hop> path(emu::NodeId from, emu::NodeId to) {
    std::vector<Hop> hops;
    int router = from / kHcas;
    const int last = to / kHcas;
    auto in = static_cast<emu::PortId>(2 + from % kHcas);
    while (router != last) {
      const bool up = router < last;
      hops.push_back(
          {static_cast<emu::RouterId>(router), in, static_cast<emu::PortId>(up ? 1 : 0)});
      in = up ? 0 : 1;
      router += up ? 1 : -1;
    }
    hops.push_back(
        {static_cast<emu::RouterId>(router), in, static_cast<emu::PortId>(2 + to % kHcas)});
    return hops;
  }
};

struct Connection {
  emu::ProbeBody body{};
  std::vector<Line::Hop> path;
  std::size_t probe_at = 0;    // next hop of the probe under way
  std::size_t release_at = 0;  // next hop of the release under way
  enum { idle, probing, granted, releasing } state = idle;
  ProbeState probe;
};

// What every book must hold: the sum over connections whose probe passed a hop unrefused and whose
// release has not.
void expect_books(const Line& line, const std::map<std::uint64_t, Connection>& connections) {
  std::map<std::pair<int, int>, std::uint64_t> out, in;
  std::vector<std::uint32_t> count(Line::kRouters);
  for (const auto& [id, c] : connections) {
    for (std::size_t hop = 0; hop < c.path.size(); ++hop) {
      const Line::Hop& h = c.path[hop];
      bool booked = false;
      if (c.state == Connection::probing) {
        booked = hop < c.probe_at;
      } else if (c.state == Connection::granted) {
        booked = true;
      } else if (c.state == Connection::releasing) {
        booked = hop >= c.release_at;
      }
      if (c.probe.rejected_by != kNoRouter) {
        // Nothing from the refusing router on.
        for (std::size_t i = 0; i <= hop; ++i) booked &= c.path[i].router != c.probe.rejected_by;
      }
      if (!booked) continue;
      out[{h.router, h.out}] += c.body.rate_bps;
      in[{h.router, h.in}] += c.body.rate_bps;
      ++count[h.router];
    }
  }
  for (int r = 0; r < Line::kRouters; ++r) {
    const Book& book = line.admission.book(static_cast<emu::RouterId>(r));
    ASSERT_EQ(book.bookings(), count[static_cast<std::size_t>(r)]);
    std::uint64_t lanes = 0;
    for (int p = 0; p < book.ports(); ++p) {
      const auto port = static_cast<emu::PortId>(p);
      const std::uint64_t used = out[{r, p}];
      const std::uint64_t used_in = in[{r, p}];
      ASSERT_EQ(book.used_out_bps(port), used);
      ASSERT_EQ(book.used_in_bps(port), used_in);
      ASSERT_LE(book.used_out_bps(port), book.limits().link_bps);
      for (emu::Vl vl = 0; vl < 16; ++vl) lanes += book.lane_out_bps(port, vl);
      lanes -= used;
    }
    ASSERT_EQ(lanes, 0u);
  }
}

// Random interleavings, one hop of one packet at a time: probes (some repeated), refusals, releases
// and deaths of nodes, whose releases are sent for them. Nothing leaks, and when all is released
// the books are empty.
class Interleaving {
 public:
  explicit Interleaving(std::uint64_t seed, bool power_control)
      : random_(seed),
        line_({.link_bps = 400 * kMbps,
               .power_w = 400e-6,
               .router_flit_pj = 190.97586,
               .flit_bits = 128,
               .power_control = power_control}) {}

  void step() {
    if (connections_.size() < 40 && random_.below(4) == 0) begin();
    if (connections_.empty()) return;
    auto it = connections_.begin();
    std::advance(it, random_.below(static_cast<std::uint32_t>(connections_.size())));
    Connection& c = it->second;
    if (c.state == Connection::probing) {
      move_probe(c);
    } else if (c.state == Connection::granted && random_.below(3) == 0) {
      start_release(c);
    } else if (c.state == Connection::releasing) {
      line_.admission.release(c.path[c.release_at++].router, c.body);
      if (c.release_at == c.path.size()) connections_.erase(it);
    } else if (random_.below(50) == 0) {
      die(c.body.source);
    }
  }
  void release_all() {
    for (auto& [id, c] : connections_) {
      for (const auto& h : c.path) line_.admission.release(h.router, c.body);
    }
    connections_.clear();
  }
  void check() const { expect_books(line_, connections_); }
  std::uint64_t refused() const { return refused_; }

 private:
  static void start_release(Connection& c) {
    c.state = Connection::releasing;
    c.release_at = 0;
  }
  void begin() {
    Connection c;
    c.body.connection = next_id_++;
    c.body.source = static_cast<emu::NodeId>(random_.below(9));
    c.body.dest = static_cast<emu::NodeId>(random_.below(9));
    c.body.rate_bps = (1 + random_.below(100)) * kMbps;
    c.body.peak_bps = c.body.rate_bps * 2;
    c.body.vl = static_cast<emu::Vl>(4 + random_.below(11));
    c.path = Line::path(c.body.source, c.body.dest);
    c.state = Connection::probing;
    c.probe = {c.body};
    connections_[c.body.connection] = c;
  }
  void move_probe(Connection& c) {
    const Line::Hop& h = c.path[c.probe_at++];
    line_.admission.probe(h.router, h.in, h.out, c.probe, c.body.vl);
    if (random_.below(4) == 0)
      line_.admission.probe(h.router, h.in, h.out, c.probe, c.body.vl);  // again
    if (c.probe_at < c.path.size()) return;
    const emu::Answer answer = Admission::answer(c.probe, 5);
    ASSERT_EQ(answer.verdict == emu::Verdict::nack, answer.rejected_by != kNoRouter);
    if (answer.verdict == emu::Verdict::ack) {
      c.state = Connection::granted;
    } else {
      ++refused_;
      start_release(c);
    }
  }
  // Everything of the node that has settled is released in its name.
  void die(emu::NodeId node) {
    for (auto& [id, c] : connections_) {
      if (c.body.source == node && c.state == Connection::granted) start_release(c);
    }
  }

  Prng random_;
  Line line_;
  std::map<std::uint64_t, Connection> connections_;
  std::uint64_t next_id_ = 1;
  std::uint64_t refused_ = 0;
};

TEST(Admission, NoInterleavingLeaksABooking) {
  const std::uint64_t seed = fresh_seed();
  for (std::uint64_t run = 0; run < (test::kSanitized ? 6 : 20); ++run) {
    Interleaving interleaving(seed + run, run % 2 == 0);
    for (int step = 0; step < 3000; ++step) {
      interleaving.step();
      interleaving.check();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(interleaving.refused(), 10u);
    interleaving.release_all();
    interleaving.check();
  }
}

TEST(Admission, TheRefusingRouterIsNamedAndNobodyBehindItBooks) {
  Line line(without_power(100));
  ProbeState first{{.connection = 1, .rate_bps = 60 * kMbps, .source = 3, .dest = 6}};
  for (const auto& h : Line::path(3, 6))
    line.admission.probe(h.router, h.in, h.out, first, first.body.vl);
  EXPECT_EQ(first.rejected_by, kNoRouter);
  ProbeState second{{.connection = 1, .rate_bps = 60 * kMbps, .source = 0, .dest = 7}};
  for (const auto& h : Line::path(0, 7))
    line.admission.probe(h.router, h.in, h.out, second, second.body.vl);
  EXPECT_EQ(second.rejected_by, 1);  // the link from router 1 to router 2 is taken
  EXPECT_EQ(line.admission.book(0).bookings(), 1u);
  EXPECT_EQ(line.admission.book(2).bookings(), 1u);
  const auto output = static_cast<std::size_t>(BookResult::output_link);
  EXPECT_EQ(line.admission.counts(1).refused[output], 1u);
  for (const auto& h : Line::path(0, 7)) line.admission.release(h.router, second.body);
  EXPECT_EQ(line.admission.book(0).bookings(), 0u);
  EXPECT_EQ(line.admission.book(2).bookings(), 1u);
  EXPECT_EQ(line.admission.release_node(3), 2u);
  EXPECT_EQ(line.admission.book(1).bookings(), 0u);
}

TEST(Admission, SwitchedOffGrantsAndBooksNothing) {
  const std::vector<int> ports = {2};
  Admission admission(ports, without_power(), false);
  ProbeState probe{{.connection = 1, .rate_bps = ~std::uint64_t{0}}};
  admission.probe(0, 0, 1, probe, probe.body.vl);
  EXPECT_EQ(Admission::answer(probe, 1).verdict, emu::Verdict::ack);
  EXPECT_EQ(admission.book(0).bookings(), 0u);
}

// ACP 3.3: 11 real-time lanes make a small frame of 44.
TEST(Weights, FollowTheBookedShares) {
  fabric::LaneRates rates{.link_bps = 400 * kMbps};
  const std::uint16_t lanes = 0x7ff0;
  for (std::size_t vl = 4; vl < 15; ++vl) rates.rate_bps[vl] = 10 * kMbps;
  auto weights = fabric::small_frame_weights(rates, lanes);
  for (std::size_t vl = 0; vl < 16; ++vl) {
    EXPECT_EQ(weights.weight[vl], vl >= 4 && vl < 15 ? 4 : 0);
  }
  // R1 = 100, R2 = 200 of the paper: a small frame of two lanes is 8, a large one 16320.
  fabric::LaneRates two{.link_bps = 400 * kMbps};
  two.rate_bps[1] = 100;
  two.rate_bps[2] = 200;
  EXPECT_EQ(fabric::small_frame_weights(two, 0x0006).weight[1], 3);
  EXPECT_EQ(fabric::small_frame_weights(two, 0x0006).weight[2], 5);
  EXPECT_EQ(fabric::large_frame_weights(two, 0x0006).weight[1], 5440);
  EXPECT_EQ(fabric::large_frame_weights(two, 0x0006).weight[2], 10880);
  // A lane with next to nothing still gets a turn; nothing booked: all alike.
  two.rate_bps[1] = 0;
  EXPECT_EQ(fabric::small_frame_weights(two, 0x0006).weight[1], 1);
  EXPECT_EQ(fabric::small_frame_weights({}, lanes).weight[9], 4);
  EXPECT_EQ(fabric::small_frame_weights({}, 0).weight[9], 0);
}

TEST(Weights, LimitOfHighPriority) {
  EXPECT_EQ(fabric::high_priority_limit(0, 400), 1);
  EXPECT_EQ(fabric::high_priority_limit(200, 400), 2);
  EXPECT_EQ(fabric::high_priority_limit(300, 400), 4);
  EXPECT_EQ(fabric::high_priority_limit(399, 400), 254);  // 400, but 255 means without limit
  EXPECT_EQ(fabric::high_priority_limit(400, 400), 255);
  EXPECT_EQ(fabric::high_priority_limit(500, 400), 255);
}

}  // namespace
