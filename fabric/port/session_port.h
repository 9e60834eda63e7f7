// The way in for hcads of other hosts: the sessions of emu/wire/session over datagrams. Packets of
// a session are copied into the pool of its node; deliveries are copied into its frames. When a
// pool is empty the session is not read and its window closes, so a node has at most so many
// packets in the fabric as its pool has slots. Called by fabricd's loop through Port.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "emu/base/result.h"
#include "emu/wire/key.h"
#include "emu/wire/session.h"
#include "fabric/port/datagrams.h"
#include "fabric/port/packets.h"
#include "fabric/port/port.h"

namespace fabric {

struct SessionPortOptions {
  EdgeRules rules;
  emu::Key cluster_key{};
  std::uint32_t mtu = 1500;                // IP packets of the path
  std::size_t slots_per_node = 2048;       // packets that a node may have in the fabric at once
  std::uint64_t heartbeat_ns = 1'000'000;  // at least so often a node hears the time
  std::uint64_t dead_ns = 700'000'000;
  emu::Objection objection;  // attached by another port, link out of service
};

class SessionPort : public Port {
 public:
  ~SessionPort() override;

  void begin_turn(std::uint64_t host_ns) override { host_ns_ = host_ns; }
  void service(std::uint64_t host_ns, Inbox& inbox) override;
  void receive(emu::Cycle now, Inbox& inbox) override;
  void deliver(emu::NodeId node, PacketHandle packet, const emu::RxDesc& desc) override;
  void injected(emu::NodeId node, const emu::Injected& event) override;
  void answer(emu::NodeId node, const emu::Answer& answer) override;
  void cut(emu::NodeId node, const std::string& reason) override;
  void flush(emu::Cycle now) override;
  bool prepare_sleep() override;
  bool end_sleep(bool readable) override { return readable; }
  std::vector<int> wait_fds() const override;
  std::uint64_t next_service_ns() const override;
  const AttachCounters& counters(emu::NodeId node) const override { return peers_[node].counters; }
  bool attached(emu::NodeId node) const override { return peers_[node].attached; }

  const emu::Acceptor& sessions() const { return acceptor_; }

 protected:
  // Makes the pools: before any shm node attaches, so that those learn of them.
  static emu::Result<std::vector<std::uint16_t>> make_pools(const SessionPortOptions& options,
                                                            PacketMemory& memory);
  SessionPort(const SessionPortOptions& options, PacketMemory& memory,
              std::vector<std::uint16_t> pools, std::unique_ptr<Datagrams> datagrams);

 private:
  struct Delivery {
    PacketHandle packet;
    emu::RxDesc desc;
  };
  using Outbound = std::variant<Delivery, emu::Injected, emu::Answer>;
  // What the port knows of a node beside its session.
  struct Peer {
    bool attached = false;    // as the loop was told
    std::uint64_t epoch = 0;  // as the loop was told
    std::uint16_t pool = 0;
    emu::UdpAddress address;
    std::deque<Outbound> waiting;  // no room in the session's window; bounded by pools and events
    std::uint64_t stalled_since_ns = 0;  // 0: nothing waits, or something went
    AttachCounters counters;
  };

  void poll();
  bool on_datagram(const emu::UdpAddress& from, std::span<const std::byte> datagram);
  void take_records(emu::NodeId node, emu::Cycle now, Inbox& inbox);
  const char* fill(PacketHandle packet, emu::NodeId node, const emu::Record& record,
                   emu::Cycle now);
  bool put(emu::NodeId node, const Outbound& out);
  void put_or_wait(emu::NodeId node, const Outbound& out);
  void push_waiting(emu::NodeId node);
  void say_bye(emu::NodeId node);
  void follow(emu::NodeId node, Inbox& inbox);
  void forget_waiting(Peer& peer);
  void send_batch();

  SessionPortOptions options_;
  PacketMemory& memory_;
  std::unique_ptr<Datagrams> datagrams_;
  emu::Acceptor acceptor_;
  std::uint64_t host_ns_ = 0;
  std::vector<Peer> peers_;
  std::vector<Datagrams::Outgoing> batch_;
};

}  // namespace fabric
