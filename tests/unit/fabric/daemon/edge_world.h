// What tests of the edge stand on: the real engine and books of a configuration, and ports that
// only remember what they were told.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/daemon/eal.h"
#include "fabric/daemon/edge.h"
#include "fabric/daemon/spec.h"

namespace fabric {

class FakePort final : public Port {
 public:
  void service(std::uint64_t, Inbox&) override {}
  void receive(emu::Cycle, Inbox&) override {}
  void deliver(emu::NodeId node, PacketHandle packet, const emu::RxDesc& desc) override {
    deliveries.push_back({node, packet, desc});
  }
  void injected(emu::NodeId node, const emu::Injected& event) override {
    events.push_back({node, event});
  }
  void answer(emu::NodeId node, const emu::Answer& answer) override {
    answers.push_back({node, answer});
  }
  void cut(emu::NodeId, const std::string&) override {}
  void flush(emu::Cycle) override {}
  bool prepare_sleep() override { return true; }
  bool end_sleep(bool) override { return false; }
  std::vector<int> wait_fds() const override { return {}; }
  std::uint64_t next_service_ns() const override { return ~std::uint64_t{0}; }
  const AttachCounters& counters(emu::NodeId) const override { return counters_; }
  bool attached(emu::NodeId) const override { return true; }

  struct Delivery {
    emu::NodeId node;
    PacketHandle packet;
    emu::RxDesc desc;
  };
  std::vector<Delivery> deliveries;
  std::vector<std::pair<emu::NodeId, emu::Injected>> events;
  std::vector<std::pair<emu::NodeId, emu::Answer>> answers;

 private:
  AttachCounters counters_;
};

// A fabric of the configuration without daemons: engine, books, edge.
class EdgeTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    char directory[] = "/tmp/flitnet-edge-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    auto started = start_eal({directory_, "", 64});
    ASSERT_TRUE(started) << started.error().message;
  }
  static void TearDownTestSuite() {
    stop_eal();
    std::filesystem::remove_all(directory_);
  }

  void SetUp() override { make(false); }
  void make(bool pass_through) { make("[network]\nnodes = 4\n", pass_through); }
  void make(const std::string& text, bool pass_through) {
    auto config = emu::Config::parse(text);
    ASSERT_TRUE(config) << config.error().message;
    config_ = std::move(*config);
    network_ = std::move(*Network::make(network_spec(config_, 1000), &controls_));
    std::vector<int> ports;
    for (int r = 0; r < network_->routers(); ++r)
      ports.push_back(network_->ports(static_cast<emu::RouterId>(r)));
    admission_.emplace(ports, book_limits(config_, network_->routers()), true);
    for (int r = 0; r < network_->routers(); ++r) {
      const auto router = static_cast<emu::RouterId>(r);
      admission_->set_router_ports(router, router_ports(*network_, router));
    }
    controls_.connect(&*admission_);
    EdgeOptions options;
    options.cycle_time = config_.network.cycle_time();
    options.pass_through = pass_through;
    edge_.emplace(*network_, memory_, controls_, options);
    pool_ = *memory_.create_pool(256);
    for (int n = 0; n < network_->nodes(); ++n) edge_->attached(static_cast<emu::NodeId>(n), port_);
  }

  PacketHandle packet(emu::NodeId source, emu::NodeId dest, std::uint64_t cookie) {
    const PacketHandle handle = memory_.allocate(pool_);
    PacketMeta& meta = memory_.meta(handle);
    meta.cookie = cookie;
    meta.length = 638;
    meta.flits = 40;
    meta.source = source;
    meta.dest = dest;
    meta.traffic_class = emu::TrafficClass::best_effort;
    return handle;
  }
  PacketHandle control(emu::PacketKind kind, emu::NodeId source, emu::NodeId dest,
                       std::uint64_t connection, std::uint64_t mbps) {
    const PacketHandle handle = packet(source, dest, connection);
    PacketMeta& meta = memory_.meta(handle);
    meta.kind = kind;
    meta.flits = 10;
    meta.vl_in = meta.vl_out = emu::kControlVl;
    meta.traffic_class = emu::TrafficClass::control;
    // The source it claims is a lie: the fabric writes who it is.
    const emu::ProbeBody body{connection, mbps * 1'000'000, mbps * 1'000'000, 3, 3, 0};
    std::memcpy(memory_.bytes(handle), &body, sizeof body);
    return handle;
  }
  void send(PacketHandle handle) {
    inbox_.packets.push_back(handle);
    edge_->submit(inbox_);
  }
  void run(emu::Cycle cycles) {
    for (emu::Cycle done = 0; done < cycles; done += 10) {
      network_->run_until(network_->now() + 10);
      edge_->hand_out();
    }
  }

  std::uint64_t bookings() const {  // at all routers
    std::uint64_t all = 0;
    for (int r = 0; r < admission_->router_count(); ++r)
      all += admission_->book(static_cast<emu::RouterId>(r)).bookings();
    return all;
  }

  void step(emu::Cycle cycles) {
    network_->run_until(network_->now() + cycles);
    edge_->hand_out();
  }

  static inline std::string directory_;
  emu::Config config_;
  PacketMemory memory_;
  ControlPackets controls_;
  FakePort port_;
  std::unique_ptr<Network> network_;
  std::optional<Admission> admission_;
  std::optional<Edge> edge_;
  Inbox inbox_;
  std::uint16_t pool_ = 0;
};

}  // namespace fabric
