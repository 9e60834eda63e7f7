#include "tests/model/random_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "emu/base/prng.h"
#include "tests/model/plain_model.h"
#include "tests/unit/sanitized.h"

namespace model {

namespace {

constexpr emu::Cycle kSlowdown = test::kSanitized ? 12 : 1;

auto fields(const hca::InjectedEvent& e) {
  return std::tuple(e.cookie, e.head_cycle, e.tail_cycle, e.handle, e.flits, e.node,
                    e.traffic_class, e.kind);
}
auto fields(const hca::DeliveredEvent& e) {
  return std::tuple(e.cookie, e.launch, e.head_cycle, e.tail_cycle, e.handle, e.flits, e.node,
                    e.src, e.vl, e.traffic_class, e.kind);
}
auto fields(const hca::AnswerEvent& e) {
  return std::tuple(e.cookie, e.cycle, e.handle, e.rejected_by, e.node, e.dest);
}

template <class Fast, class Plain>
void expect_same(const char* what, const Fast& fast, Plain& plain) {
  ASSERT_EQ(fast.size(), plain.size()) << what;
  for (std::size_t i = 0; i < fast.size(); ++i)
    ASSERT_EQ(fields(fast[i]), fields(plain[i])) << what << " number " << i;
  plain.clear();
}

constexpr std::uint32_t kAheadMost = 200;  // cycles from submission to launch

// Says yes or no by a hash, and remembers what it was asked.
class RandomBook final : public fabric::ControlHook {
 public:
  bool at_route(const fabric::ControlHead& h) override {
    asked.emplace_back(h.router, h.in_port, h.out_port, h.kind, h.src, h.dest, h.cookie, h.handle,
                       h.cycle);
    return (h.cookie * 31 + h.router * 7U) % 5 != 0;
  }
  using Question = std::tuple<emu::RouterId, emu::PortId, emu::PortId, emu::PacketKind, emu::NodeId,
                              emu::NodeId, std::uint64_t, std::uint32_t, emu::Cycle>;
  std::vector<Question> take() {
    std::vector<Question> sorted = std::move(asked);
    asked.clear();
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }
  std::vector<Question> asked;
};

// A spec that was drawn wrong says why.
std::unique_ptr<fabric::Network> made(const fabric::NetworkSpec& spec, fabric::ControlHook* hook) {
  auto network = fabric::Network::make(spec, hook);
  if (!network) throw std::invalid_argument(network.error().message);
  return std::move(*network);
}

class Run {
 public:
  explicit Run(const RunOptions& options)
      : options_(options),
        random_(options.seed),
        fast_(made(options.spec, &fast_book_)),
        plain_(make_plain_model(options.spec, &plain_book_)) {}

  void go() {
    const emu::Cycle end = fast_->now() + options_.cycles / kSlowdown;
    while (fast_->now() < end && !testing::Test::HasFatalFailure()) {
      submit_some();
      if (random_.below(8) == 0) change_settings();
      if (options_.links_fail && random_.below(4) == 0) change_links();
      advance(random_.below(4) == 0 ? 1 : 1 + random_.below(60));
    }
    if (submitted_ == 0) submit(0);
    if (options_.spec.router == fabric::RouterKind::circuit) close_circuits();
    drain();
    if (testing::Test::HasFatalFailure()) return;
    EXPECT_TRUE(done()) << "not drained";
    EXPECT_TRUE(!options_.links_fail || kSlowdown > 1 || times_down_ > 0);
    EXPECT_TRUE(!options_.recovers || kSlowdown > 1 || fast_->design_counters().recoveries > 0);
    EXPECT_GT(delivered_, 0U);
    EXPECT_EQ(submitted_, delivered_) << "messages lost or doubled";
    for (int n = 0; n < fast_->nodes(); ++n)
      EXPECT_EQ(fast_->room(static_cast<emu::NodeId>(n)), options_.spec.packets_per_node);
  }

 private:
  bool done() const {
    return plain_->live_messages() == 0 && fast_->idle() &&
           fast_->next_event_cycle() == emu::kNever;
  }

  // As long as anything arrives: some designs are slow.
  void drain() {
    for (int quiet = 0; quiet < 2000 && !done() && !testing::Test::HasFatalFailure(); ++quiet) {
      const std::uint64_t before = delivered_;
      advance(100);
      if (delivered_ != before) quiet = 0;
    }
  }

  void advance(emu::Cycle cycles) {
    if (options_.shuffle_routers) shuffle();
    if (options_.jump_idle) {
      fast_->run_until(fast_->now() + cycles);
    } else {
      fast_->step(cycles);
    }
    for (emu::Cycle c = 0; c < cycles; ++c) {
      plain_->step();
      plain_->check_invariants();
    }
    ASSERT_EQ(fast_->now(), plain_->now());
    ASSERT_EQ(fast_->audit(), "");
    delivered_ += fast_->delivered().size() + fast_->answers().size();
    ASSERT_NO_FATAL_FAILURE(expect_same("injected", fast_->injected(), plain_->injected));
    ASSERT_NO_FATAL_FAILURE(expect_same("delivered", fast_->delivered(), plain_->delivered));
    ASSERT_NO_FATAL_FAILURE(expect_same("answers", fast_->answers(), plain_->answers));
    ASSERT_EQ(fast_book_.take(), plain_book_.take());
    ASSERT_NO_FATAL_FAILURE(expect_same_flits());
    fast_->clear_events();
  }

  // Over every link since the start, and of every router in the windows that have ended.
  void expect_same_flits() {
    FlitLog& log = plain_->log;
    for (const auto& [at, flits] : log.links) {
      const auto [router, port] = at;
      const fabric::LinkFlits fast = fast_->link_flits(router, static_cast<emu::PortId>(port));
      ASSERT_EQ(std::pair(fast.in, fast.out), std::pair(flits.in, flits.out))
          << "router " << router << " port " << port;
    }
    for (const fabric::ActivityWindow& fast : fast_->activity()) {
      const auto plain = log.windows.extract({fast.begin, fast.router});
      ASSERT_FALSE(plain.empty()) << "router " << fast.router << " did nothing";
      const auto flits = [](const fabric::ActivityWindow& w) {
        return std::tuple(w.arrived, w.crossed, w.sent, w.sent_to_routers, w.hca_flits);
      };
      ASSERT_EQ(flits(fast), flits(plain.mapped()))
          << "router " << fast.router << " in the window from " << fast.begin;
    }
    const auto length = static_cast<emu::Cycle>(options_.spec.energy_window);
    for (const auto& [at, left] : log.windows)
      ASSERT_EQ(at.first, plain_->now() / length * length) << "router " << at.second;
  }

  void shuffle() {
    std::vector<emu::RouterId> order;
    for (int r = 0; r < fast_->routers(); ++r) order.push_back(static_cast<emu::RouterId>(r));
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[random_.below(static_cast<std::uint32_t>(i))]);
    fast_->set_step_order(order);
  }

  void submit_some() {
    // Expected cycles to the next call, and packets that give the load in them.
    const double mean = options_.load * 23.0 / (options_.flits_max / 2.0);
    for (int n = 0; n < fast_->nodes(); ++n) {
      const auto node = static_cast<emu::NodeId>(n);
      for (double left = mean; left > 0; left -= 1)
        if (random_.uniform() < left) submit(node);
    }
  }

  void submit(emu::NodeId src) { submit(src, random_packet()); }

  // Whoever was left without a lane gets one.
  void close_circuits() {
    for (int n = 0; n < fast_->nodes(); ++n) {
      for (std::uint16_t stream = 1; stream <= kStreams; ++stream) {
        hca::SendPacket packet;
        packet.stream = stream;
        packet.dest = static_cast<emu::NodeId>(stream % fast_->nodes());
        packet.kind = emu::PacketKind::release;
        packet.launch = fast_->now() + kAheadMost;  // behind every probe that would open it again
        submit(static_cast<emu::NodeId>(n), packet);
      }
    }
  }

  void submit(emu::NodeId src, const hca::SendPacket& packet) {
    if (!fast_->submit(src, packet)) return;
    plain_->submit(src, packet);
    ++submitted_;
  }

  hca::SendPacket random_packet() {
    hca::SendPacket packet;
    const auto lanes = static_cast<std::uint32_t>(options_.lanes);
    packet.cookie = random_();
    packet.handle = random_.below(1 << 30);
    packet.launch = random_.below(3) == 0 ? fast_->now() + random_.below(kAheadMost) : 0;
    packet.flits = static_cast<std::uint16_t>(
        1 + random_.below(static_cast<std::uint32_t>(options_.flits_max)));
    packet.dest =
        options_.hot_spot && random_.below(4) != 0
            ? emu::NodeId{0}
            : static_cast<emu::NodeId>(random_.below(static_cast<std::uint32_t>(fast_->nodes())));
    if (options_.spec.router == fabric::RouterKind::circuit && random_.below(2) == 0) {
      packet.stream = static_cast<std::uint16_t>(1 + random_.below(kStreams));
      packet.dest = static_cast<emu::NodeId>(packet.stream % fast_->nodes());
    }
    packet.vl_in = static_cast<emu::Vl>(random_.below(lanes));
    packet.vl_out =
        random_.below(2) == 0 ? packet.vl_in : static_cast<emu::Vl>(random_.below(lanes));
    const std::uint32_t kind = random_.below(20);
    if (kind <= 1) packet.kind = kind == 0 ? emu::PacketKind::probe : emu::PacketKind::release;
    packet.traffic_class = static_cast<emu::TrafficClass>(random_.below(3));
    static constexpr emu::Vtick kVticks[] = {0, 1, 3, 14, 100, 2000, 20000, emu::kVtickMax};
    packet.vtick = kVticks[random_.below(std::size(kVticks))];
    return packet;
  }

  emu::VlWeights random_weights() {
    emu::VlWeights weights;
    for (auto& w : weights.high) w = static_cast<std::uint16_t>(random_.below(6));
    for (auto& w : weights.low) w = static_cast<std::uint16_t>(random_.below(3));
    weights.high_limit =
        random_.below(2) == 0 ? emu::kLimitUnbounded : static_cast<std::uint16_t>(random_.below(5));
    weights.pointer = random_.below(2) == 0 ? emu::PointerKind::fast : emu::PointerKind::slow;
    // Not drawn: seeds of earlier soaks mean the same.
    weights.whole_packets = weights.high[0] % 2 == 0;
    return weights;
  }

  void change_settings() {
    const auto router =
        static_cast<emu::RouterId>(random_.below(static_cast<std::uint32_t>(fast_->routers())));
    const auto port =
        static_cast<emu::PortId>(random_.below(static_cast<std::uint32_t>(fast_->ports(router))));
    const auto node =
        static_cast<emu::NodeId>(random_.below(static_cast<std::uint32_t>(fast_->nodes())));
    const emu::VlWeights weights = random_weights();
    const auto lane = static_cast<emu::Vl>(random_.below(emu::kVlCount));
    const auto vtick = static_cast<emu::Vtick>(random_.below(200));
    const auto weighted = [](emu::SchedulerKind kind) {
      return kind == emu::SchedulerKind::wrr || kind == emu::SchedulerKind::two_level;
    };
    if (weighted(options_.spec.scheduler)) {
      fast_->set_weights(router, port, weights);
      plain_->set_weights(router, port, weights);
    }
    if (weighted(options_.spec.wire_scheduler())) {
      fast_->set_wire_weights(node, weights);
      plain_->set_wire_weights(node, weights);
    }
    if (emu::has_lane_vticks(options_.spec.scheduler)) {
      fast_->set_lane_vtick(router, port, lane, vtick);
      plain_->set_lane_vtick(router, port, lane, vtick);
    }
    if (emu::has_lane_vticks(options_.spec.wire_scheduler())) {
      fast_->set_wire_vtick(node, lane, vtick);
      plain_->set_wire_vtick(node, lane, vtick);
    }
  }

  // None to three links go down, wherever both ends of them lead on; what was down comes back.
  void change_links() {
    std::vector<fabric::LinkEnd> down;
    for (std::uint32_t left = random_.below(4); left > 0; --left) {
      const auto router =
          static_cast<emu::RouterId>(random_.below(static_cast<std::uint32_t>(fast_->routers())));
      const auto port =
          static_cast<emu::PortId>(random_.below(static_cast<std::uint32_t>(fast_->ports(router))));
      if (fast_->peer(router, port).router != emu::kNoRouter) down.push_back({router, port});
    }
    if (!fast_->set_down(down)) return;  // somebody would be cut off
    plain_->set_down(down);
    if (!down.empty()) ++times_down_;
  }

  static constexpr std::uint16_t kStreams = 5;
  RunOptions options_;
  emu::Prng random_;
  RandomBook fast_book_;
  RandomBook plain_book_;
  std::unique_ptr<fabric::Network> fast_;
  std::unique_ptr<PlainModel> plain_;
  std::uint64_t submitted_ = 0;
  std::uint64_t delivered_ = 0;
  int times_down_ = 0;
};

}  // namespace

void compare_engines(const RunOptions& options) {
  RunOptions run = options;
  run.spec.isa_max = static_cast<emu::Isa>(options.seed % 3);
  run.spec.strict_classes = options.seed % 5 < 2;
  run.spec.control_first = options.seed % 6 != 4;
  run.spec.alloc_iters = static_cast<int>(1 + options.seed % 4);
  // A residue of its own, so that each engine has several.
  run.spec.threads = options.seed % 11 < 2 ? 2 : options.seed % 11 < 4 ? 4 : 1;
  compare_run(run);
}

void compare_run(const RunOptions& options) {
  SCOPED_TRACE(testing::Message() << "seed " << options.seed);
  Run(options).go();
}

}  // namespace model
