// The promises of the demo, on the whole cluster in one thread: short runs of the same scenario.
// Seeds are fixed; a seed that fails becomes a test of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/sim/run.h"
#include "tests/unit/sanitized.h"

namespace {

using sim::Run;

// Eighteen frames of every stream; with a sanitizer six.
constexpr double kSeconds = test::kSanitized ? 0.2 : 0.6;

struct Scene {
  sim::LoadOptions load;
  double seconds = kSeconds;
  double drop = 0;
  std::uint64_t seed = 1;
  bool admission = true;
  bool power = true;
  int nodes = 8;
  std::string topology = "single";
  std::string routing = "auto";
  emu::Cycle quantum = 128;
};

std::unique_ptr<Run> make(const Scene& scene) {
  sim::ClusterOptions options;
  auto config =
      emu::Config::parse(fmt::format("[network]\ntopology = \"{}\"\nrouting = \"{}\"\nnodes = {}\n",
                                     scene.topology, scene.routing, scene.nodes));
  EXPECT_TRUE(config.has_value());
  options.config = config.value();  // what is not there ends the test, after it was told
  options.config.controls.admission = scene.admission;
  options.config.controls.power_control = scene.power;
  options.seed = scene.seed;
  options.quantum = scene.quantum;
  options.drop = scene.drop;
  const char* traces = std::getenv("FLITNET_TRACES");
  auto scenario = sim::make_scenario(options.config, traces == nullptr ? "traces" : traces,
                                     scene.load, scene.seed);
  EXPECT_TRUE(scenario.has_value()) << (scenario ? "" : scenario.error().message);
  scenario.value().seconds = scene.seconds;
  auto run = Run::make(options, std::move(*scenario));
  EXPECT_TRUE(run.has_value());
  return std::move(run.value());
}

std::unique_ptr<Run> played(const Scene& scene) {
  auto run = make(scene);
  run->admit();
  run->start();
  run->play();
  return run;
}

std::size_t admitted(Run& run) {
  return static_cast<std::size_t>(
      std::count_if(run.streams().begin(), run.streams().end(),
                    [](const auto& stream) { return stream->admitted(); }));
}

double mean_dmp(Run& run) {
  double sum = 0;
  for (const auto& stream : run.streams()) sum += stream->deadlines().dmp();
  return sum / static_cast<double>(run.streams().size());
}

// Nothing lost, nothing twice, no byte wrong, every deadline kept, the power under its cap.
TEST(Cluster, DefaultLoadKeepsAllPromises) {
  auto run = played({});
  EXPECT_EQ(admitted(*run), run->streams().size());
  for (const auto& stream : run->streams()) {
    EXPECT_EQ(stream->received(), stream->sent()) << stream->plan().name;
    EXPECT_EQ(stream->bytes_corrupt(), 0u);
    EXPECT_LE(stream->deadlines().dmp(), 0.01);
    EXPECT_LE(stream->deadlines().interval_sd_ms(), 0.5);
    EXPECT_EQ(stream->credit_refusals(), 0u);
  }
  EXPECT_EQ(run->lost(), 0u);
  EXPECT_EQ(run->duplicated(), 0u);
  EXPECT_LE(run->cluster().power().max_w(), run->cluster().power().cap_w());
  EXPECT_EQ(run->cluster().network().audit(), "");
}

// What an HCA says of its port is what the fabric says of it: whole flits, acknowledgements too.
TEST(Cluster, AnHcaCountsItsPortAsTheFabricDoes) {
  auto run = played({.seconds = 0.1, .admission = false});
  for (int n = 0; n < run->cluster().nodes(); ++n) {
    const hca::HostCounters& own = run->cluster().host(n).counters();
    const auto wire = run->cluster().network().wire_counters(static_cast<emu::NodeId>(n));
    std::uint64_t sent_flits = 0;
    std::uint64_t sent_packets = 0;
    std::uint64_t received_flits = 0;
    std::uint64_t received_packets = 0;
    for (std::size_t v = 0; v < emu::kVlCount; ++v) {
      sent_flits += wire.sent[v].flits;
      sent_packets += wire.sent[v].packets;
      received_flits += wire.received[v].flits;
      received_packets += wire.received[v].packets;
    }
    EXPECT_GT(own.acks_sent, 0U);
    EXPECT_EQ(own.port_flits_sent, sent_flits) << "node " << n;
    EXPECT_EQ(own.port_packets_sent, sent_packets) << "node " << n;
    EXPECT_EQ(own.port_flits_received, received_flits) << "node " << n;
    EXPECT_EQ(own.port_packets_received, received_packets) << "node " << n;
  }
}

// The same load without power control is above the cap in some window of 500 cycles.
TEST(Cluster, WithoutPowerControlAboveTheCap) {
  auto run = played({.seconds = std::max(kSeconds, 0.34), .power = false});
  EXPECT_GT(run->cluster().power().max_w(), run->cluster().power().cap_w());
  EXPECT_EQ(run->lost(), 0u);
}

// Between routers it is the links that take most: a hop of a flit costs seven times a router's.
TEST(Cluster, TheMeterKnowsOfLinks) {
  auto run = make({.load = {.load = 0.4}, .nodes = 4, .topology = "mesh:2x2"});
  run->admit();
  run->start();
  const auto passed = [&] {
    const fabric::Network& network = run->cluster().network();
    double router_flits = 0;
    double link_flits = 0;
    for (emu::RouterId r = 0; r < network.routers(); ++r) {
      for (int p = 0; p < network.ports(r); ++p) {
        const auto port = static_cast<emu::PortId>(p);
        const double out = static_cast<double>(network.link_flits(r, port).out);
        router_flits += out;
        if (network.peer(r, port).router != emu::kNoRouter) link_flits += out;
      }
    }
    const emu::EnergyTable& energy = run->cluster().config().energy;
    return router_flits * energy.router_flit_pj() + link_flits * energy.link_flit_pj();
  };
  const double before_pj = passed();
  const emu::EmuNs begin_ns = run->cluster().now_ns();
  run->play();
  const double taken_pj = passed() - before_pj;
  const double time_ns = static_cast<double>(run->cluster().now_ns() - begin_ns);
  EXPECT_NEAR(run->cluster().power().mean_w() * time_ns * 1e3, taken_pj, 0.01 * taken_pj);
}

// What a run under power control promises whatever the host's scheduling does.
void expect_cap_kept(Run& run) {
  const emu::PowerMeter& power = run.cluster().power();
  EXPECT_LE(power.max_w(), power.cap_w());
  EXPECT_EQ(power.windows_above_cap(), 0u);
  for (const auto& stream : run.streams()) EXPECT_EQ(stream->received(), stream->sent());
  EXPECT_EQ(run.lost(), 0u);
  EXPECT_EQ(run.duplicated(), 0u);
  EXPECT_EQ(run.cluster().network().audit(), "");
}

// The host gives the senders of one node no time, or of all: their frames come late and all at
// once. That is no reason to leave at once.
TEST(Cluster, LateProgramsKeepTheCap) {
  for (const bool all : {false, true}) {
    auto run = make({.load = {.load = 0.4}, .nodes = 4});
    run->admit();
    run->start();
    for (int n = 0; n < (all ? 4 : 2); ++n) {
      if (all || n == 1) run->starve(n, run->cluster().now_ns() + 200'000'000);
    }
    run->play();
    expect_cap_kept(*run);
  }
}

// The host runs an HCA late: emulated time waits for it, but only as far as `clock.follow_ms`. What
// it hands on as due now has been due for long. (Four that are so late in every turn are 18 % above
// the cap: what they spaced by their clock comes all at once.)
TEST(Cluster, ALateHcaKeepsTheCap) {
  auto run = make({.load = {.load = 0.4}, .nodes = 4});
  run->admit();
  run->start();
  const emu::Config& config = run->cluster().config();
  run->cluster().stall(
      1, config.network.cycle_time().cycle_at(emu::EmuNs{config.clock.follow_ms} * 1'000'000));
  run->play();
  expect_cap_kept(*run);
}

// The promises hold on every topology: probes book hop by hop, what is admitted arrives in time,
// everything else arrives. By load and adaptively best effort may overtake itself: the transport
// puts it right.
TEST(Cluster, EveryTopologyKeepsItsPromises) {
  struct Net {
    const char* topology;
    const char* routing;
    int nodes;
  };
  for (const Net& net : {Net{"mesh:3x2", "auto", 6}, Net{"mesh:3x2", "adaptive", 6},
                         Net{"torus:3x3", "auto", 9}, Net{"fat_mesh:2x3", "dor_by_load", 6},
                         Net{"tree:2x3", "auto", 8}, Net{"tree:2x3", "up_by_load", 8}}) {
    // With a sanitizer each routing once.
    if (test::kSanitized && std::string_view(net.routing) == "auto") continue;
    SCOPED_TRACE(fmt::format("{} {}", net.topology, net.routing));
    Scene scene;
    scene.load.load = 0.3;
    scene.seconds = 0.1;
    scene.nodes = net.nodes;
    scene.topology = net.topology;
    scene.routing = net.routing;
    auto run = played(scene);
    EXPECT_GT(admitted(*run), 0u);
    for (const auto& stream : run->streams()) {
      if (!stream->admitted()) continue;
      EXPECT_EQ(stream->received(), stream->sent()) << stream->plan().name;
      EXPECT_EQ(stream->bytes_corrupt(), 0u);
      EXPECT_LE(stream->deadlines().dmp(), 0.01);
    }
    EXPECT_EQ(run->lost(), 0u);
    EXPECT_EQ(run->duplicated(), 0u);
    EXPECT_EQ(run->cluster().network().audit(), "");
    EXPECT_EQ(run->cluster().network().stuck(), "");
    const fabric::Admission& admission = run->cluster().admission();
    int routers = 0;
    for (int r = 0; r < admission.router_count(); ++r)
      routers += admission.counts(static_cast<emu::RouterId>(r)).admitted > 0;
    EXPECT_GT(routers, 1) << "booked along the way, not at one router";
  }
}

// Same seed, same bytes; another seed, other bytes.
TEST(Cluster, SameSeedSameJson) {
  constexpr double kSome = kSeconds / 3;
  const Scene scene{.seconds = kSome};
  const std::string first = played(scene)->json();
  EXPECT_EQ(first, played(scene)->json());
  EXPECT_NE(first, played({.seconds = kSome, .seed = 2})->json());
}

// More streams than bandwidth: the router refuses the rest by name, and those inside keep their
// deadlines; without admission all suffer.
TEST(Cluster, OverloadIsRefusedByTheRouter) {
  const sim::LoadOptions overload{.overload = true};
  auto with = played({.load = overload});
  const std::size_t inside = admitted(*with);
  EXPECT_GT(inside, 50u);
  EXPECT_LT(inside, with->streams().size());
  for (const auto& stream : with->streams()) {
    if (stream->admitted()) {
      EXPECT_LE(stream->deadlines().dmp(), 0.01);
      EXPECT_LE(stream->deadlines().interval_sd_ms(), 0.5);
      EXPECT_EQ(stream->bytes_corrupt(), 0u);
    } else {
      EXPECT_EQ(stream->outcome().verdict, hca::AdmissionVerdict::refused_by_router);
      EXPECT_EQ(stream->outcome().router, 0);
    }
  }
  EXPECT_EQ(with->lost(), 0u);

  auto without = played({.load = overload, .admission = false});
  EXPECT_EQ(admitted(*without), without->streams().size());
  EXPECT_GT(mean_dmp(*without), 10 * std::max(mean_dmp(*with), 0.01));
  EXPECT_EQ(without->duplicated(), 0u);
}

// QPs are numbered by each node: an answer is for the stream of the node that asked.
TEST(Cluster, WhoWasAdmittedIsBooked) {
  auto run = make({.load = {.overload = true}});
  run->admit();
  const fabric::Book& book = run->cluster().admission().book(0);
  EXPECT_EQ(admitted(*run), book.bookings());
}

// Packets that vanish between fabric and HCA are sent again by RC: every frame still arrives once.
TEST(Cluster, LossAtTheAttachmentIsRecovered) {
  auto run = make({.load = {.load = 0.3, .real_time_share = 1.0}, .drop = 0.002});
  run->admit();
  run->start();
  run->play();
  EXPECT_GT(run->cluster().dropped(), 50u);
  std::uint64_t repeated = 0;
  for (int n = 0; n < run->cluster().nodes(); ++n)
    repeated += run->cluster().host(n).counters().packets_retransmitted;
  // All that was handed on ahead of time behind the lost one, once: repetitions keep their order.
  EXPECT_LT(repeated, 50 * run->cluster().dropped());
  for (const auto& stream : run->streams()) {
    EXPECT_EQ(stream->received(), stream->sent());
    EXPECT_EQ(stream->duplicated(), 0u);
    EXPECT_EQ(stream->bytes_corrupt(), 0u);
    EXPECT_FALSE(stream->failed());
  }
}

// All ask at once, and the programs of a node die at any point of their handshakes, which take some
// hundred cycles: when all is quiet every router has booked what its node has, and no more.
TEST(Cluster, DeathAtAnyPointOfAHandshakeLeaksNothing) {
  for (int turns = 0; turns < 30; turns += test::kSanitized ? 6 : 2) {
    auto run = make({.load = {.load = 0.5, .real_time_share = 1.0},
                     .nodes = 4,
                     .topology = "mesh:2x2",
                     .quantum = 16});
    for (auto& stream : run->streams()) stream->ask_admission();
    for (int t = 0; t < turns; ++t) run->turn();
    const int dead = turns / 2 % 4;
    run->kill_apps(dead);
    for (int t = 0; t < 1000; ++t) run->turn();
    std::uint64_t booked_of_all = 0;
    for (int n = 0; n < 4; ++n) {
      const auto node = static_cast<emu::NodeId>(n);
      const fabric::Network& network = run->cluster().network();
      const fabric::Book& book = run->cluster().admission().book(network.router_of(node));
      const std::uint64_t booked = book.used_in_bps(network.port_of(node));
      EXPECT_EQ(booked, run->cluster().host(n).counters().reserved_bps)
          << "node " << n << " of a death after " << turns << " turns";
      EXPECT_TRUE(n != dead || booked == 0);
      booked_of_all += booked;
    }
    EXPECT_GT(booked_of_all, 0U);
  }
}

// What a dead program had booked is free again within a second of emulated time; others go on.
TEST(Cluster, DeathReleasesBookings) {
  auto run = make({.load = {.load = 0.4, .real_time_share = 1.0}, .seconds = 0.4});
  run->admit();
  run->start();
  run->run_ns(100'000'000);
  const fabric::Book& book = run->cluster().admission().book(0);
  const std::uint32_t all = book.bookings();
  const auto mine = static_cast<std::uint32_t>(
      std::count_if(run->streams().begin(), run->streams().end(),
                    [](const auto& stream) { return stream->from() == 3; }));
  ASSERT_GT(mine, 0u);
  run->kill_apps(3);
  run->run_ns(100'000'000);
  EXPECT_EQ(book.bookings(), all - mine);
  EXPECT_EQ(run->cluster().network().audit(), "");
}

}  // namespace
