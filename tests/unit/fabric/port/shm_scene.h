// The scene of the tests of fabric/port/shm: both ends of the shared-memory attachment in one
// process, a fabric of no time in between.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emu/clock/page.h"
#include "fabric/daemon/eal.h"
#include "fabric/port/shm.h"
#include "hca/attach/shm.h"

namespace fabric {

constexpr std::size_t kSlots = 256;

class ShmPortTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    char directory[] = "/tmp/flitnet-port-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    run_dir_ = directory;
    auto started = start_eal({run_dir_, "", 64});
    ASSERT_TRUE(started) << started.error().message;
  }
  static void TearDownTestSuite() {
    stop_eal();
    std::filesystem::remove_all(run_dir_);
  }

  void SetUp() override {
    options_.socket_path = run_dir_ + "/fabric.sock";
    options_.slots_per_node = kSlots;
    options_.rules.node_count = 3;
    options_.rules.node_names = {"n0", "n1", "n2"};
    options_.rules.lanes_of_class[0] = 0x8000;
    options_.rules.lanes_of_class[1] = 0x7ff0;
    options_.rules.lanes_of_class[2] = 0x000f;
    options_.rules.horizon_cycles = 1'000'000;
    clock_.emplace(*emu::ClockWriter::open(run_dir_ + "/clock.page", options_.rules.cycle_time,
                                           emu::ClockMode::elastic));
    open_port();
  }
  void open_port() {
    auto port = ShmPort::open(options_, memory_);
    ASSERT_TRUE(port) << port.error().message;
    port_ = std::move(*port);
  }
  std::unique_ptr<hca::Attachment> attach(const std::string& name) {
    auto attachment = hca::make_shm_attachment({run_dir_, name});
    settle(*attachment);
    return attachment;
  }
  void settle(hca::Attachment& attachment) {
    for (int i = 0; i < 4; ++i) {
      host_ns_ += 60'000'000;
      attachment.service(host_ns_);
      turn();
    }
  }
  // One turn of a fabric in which everything arrives at once.
  void turn() {
    host_ns_ += 2'000'000;
    port_->service(host_ns_, inbox_);
    port_->receive(now_, inbox_);
    for (const PacketHandle packet : inbox_.packets) pass(packet);
    inbox_.packets.clear();
    for (auto& event : inbox_.events) events_.push_back(event);
    inbox_.events.clear();
    port_->flush(now_);
    clock_->publish(++now_);
  }
  void pass(PacketHandle packet) {
    const PacketMeta meta = memory_.meta(packet);
    if (port_->attached(meta.source)) {
      port_->injected(meta.source,
                      {meta.cookie, now_, meta.flits, meta.traffic_class, meta.kind, 0});
    }
    if (hold_) {
      held_.push_back(packet);
    } else {
      arrive(packet);
    }
  }
  void arrive(PacketHandle packet) {
    const PacketMeta meta = memory_.meta(packet);
    if (!port_->attached(meta.dest)) return memory_.release(packet);
    port_->deliver(meta.dest, packet,
                   {now_, now_ + 40, 0, meta.length, meta.flits, meta.source, meta.vl_out,
                    meta.traffic_class, meta.more_packets, 0});
  }
  static emu::TxDesc desc(std::uint16_t buffer, emu::NodeId dest, std::uint64_t cookie) {
    return {cookie,
            0,
            buffer,
            0,
            640,
            40,
            dest,
            2,
            2,
            emu::TrafficClass::best_effort,
            emu::PacketKind::data,
            0};
  }
  std::size_t send(hca::Attachment& from, emu::NodeId dest, std::uint64_t cookie) {
    auto slot = from.acquire();
    if (!slot) return 0;
    std::memset(slot->bytes, static_cast<int>(cookie & 0xff), 640);
    std::memcpy(slot->bytes, &cookie, sizeof cookie);
    const auto d = desc(slot->buffer, dest, cookie);
    return from.send(std::span(&d, 1));
  }
  std::vector<std::uint64_t> receive(hca::Attachment& at, bool release = true) {
    std::vector<std::uint64_t> cookies;
    std::array<hca::Received, 32> got;
    while (const std::size_t count = at.receive(got)) {
      for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t cookie;
        std::memcpy(&cookie, got[i].bytes, sizeof cookie);
        EXPECT_EQ(got[i].bytes[639], cookie & 0xff);
        cookies.push_back(cookie);
        if (release) at.release(got[i].desc.buffer);
      }
    }
    at.flush();
    return cookies;
  }
  std::size_t count_state(std::uint16_t pool, SlotState state) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < memory_.slots(pool); ++i) {
      if (memory_.meta(handle_of(pool, static_cast<std::uint16_t>(i))).state == state) ++count;
    }
    return count;
  }
  std::string last_loss() const {
    for (auto it = events_.rbegin(); it != events_.rend(); ++it) {
      if (it->kind == NodeEventKind::lost) return it->reason;
    }
    return "";
  }

  static inline std::string run_dir_;
  ShmPortOptions options_;
  PacketMemory memory_;
  std::optional<emu::ClockWriter> clock_;
  std::unique_ptr<ShmPort> port_;
  Inbox inbox_;
  std::vector<NodeEvent> events_;
  std::deque<PacketHandle> held_;
  bool hold_ = false;
  std::uint64_t host_ns_ = 1'000'000'000;
  emu::Cycle now_ = 1000;
};

}  // namespace fabric
