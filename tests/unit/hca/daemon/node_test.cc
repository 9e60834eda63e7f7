// A whole node before a fabric of another host that is one socket and its sessions. Host time is
// handed in.
#include "hca/daemon/node.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "emu/config/agreed.h"
#include "emu/ring/unix_socket.h"
#include "emu/wire/key.h"
#include "emu/wire/session.h"
#include "emu/wire/udp_socket.h"

namespace hca {
namespace {

constexpr std::uint64_t kTurnNs = 500'000;

class NodeTest : public testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/flitnet-node-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    run_dir_ = directory;
    auto config = emu::Config::parse(
        fmt::format("[network]\nnodes = 2\n[attach]\nkind = \"udp\"\nfabric = \"{}\"\n",
                    emu::local_address(socket_.fd())->text()));
    ASSERT_TRUE(config) << config.error().message;
    config_ = std::move(*config);
    auto node = Node::make(run_dir_, config_, 1);
    ASSERT_TRUE(node) << node.error().message;
    node_ = std::move(*node);
    emu::AcceptorOptions options;
    options.cluster_key = *emu::read_key_file(run_dir_ + "/cluster.key");
    for (const auto& each : config_.nodes) options.node_names.push_back(each.name);
    options.entropy = emu::random_key();
    options.cycle_ps = config_.network.cycle_time().cycle_ps;
    options.settings = emu::agreed_settings(config_);
    fabric_.emplace(options);
    control_ = std::move(*emu::connect_unix(run_dir_ + "/nodes/n1/hcad.ctl", true));
  }
  void TearDown() override {
    node_.reset();
    std::filesystem::remove_all(run_dir_);
  }
  emu::Cycle fabric_cycle() const { return config_.network.cycle_time().cycle_at(host_ns_); }
  void fabric_turn() {
    while (
        socket_.receive([this](const emu::UdpAddress& from, std::span<const std::byte> datagram) {
          at_ = from;
          const emu::Arrival arrival = fabric_->receive(datagram, host_ns_);
          if (!arrival.reply.empty()) send({arrival.reply, arrival.reply.size()});
        })) {
    }
    fabric_->service(host_ns_);
    const emu::Train train = fabric_->transmit(1, host_ns_, fabric_cycle());
    if (!train.empty()) send(train);
  }
  void send(const emu::Train& train) {
    const emu::UdpSocket::Outgoing out{at_, train};
    socket_.send({&out, 1});
  }
  // Both, the fabric first: what it sends has arrived when the node has its turn.
  void turn(std::uint64_t after_ns = kTurnNs) {
    host_ns_ += after_ns;
    fabric_turn();
    node_->turn(host_ns_);
  }
  void ask() {
    const std::string question = "{\"cmd\": \"status\"}\n";
    ASSERT_TRUE(emu::send_message(control_.get(), std::as_bytes(std::span(question))));
  }
  std::uint64_t told_ns() {
    std::array<char, 8192> bytes{};
    const auto message =
        emu::receive_message(control_.get(), std::as_writable_bytes(std::span(bytes)));
    if (!message) return 0;
    const std::string status(bytes.data(), message->bytes);
    const std::string key = "\"emulated_ns\":";
    const std::size_t at = status.find(key);
    return at == std::string::npos ? 0 : std::stoull(status.substr(at + key.size()));
  }

  emu::UdpSocket socket_{*emu::open_udp_socket(*emu::UdpAddress::resolve("127.0.0.1:0"))};
  std::string run_dir_;
  emu::Config config_;
  std::optional<emu::Acceptor> fabric_;
  std::unique_ptr<Node> node_;
  emu::UniqueFd control_;
  emu::UdpAddress at_;  // where the node is
  std::uint64_t host_ns_ = 1'000'000'000;
};

// It would be ahead of it if what wakes the node had the time of its last service() for its
// arrival.
TEST_F(NodeTest, TimeAfterASleepIsTheFabrics) {
  for (int i = 0; i < 200; ++i) turn();
  ASSERT_TRUE(fabric_->attached(1));
  turn(15'000'000);
  ask();
  turn(1'000'000);
  const std::uint64_t told = told_ns();
  ASSERT_NE(told, 0U);
  EXPECT_LE(told, host_ns_);
  EXPECT_GE(told + 1'000'000, host_ns_);
}

}  // namespace
}  // namespace hca
