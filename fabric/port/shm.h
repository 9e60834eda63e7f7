// The way in for hcads of this host: rings in a shared region per node (emu/wire/shm_layout.h), the
// node's packet pool mapped by both. Packets cross without a copy: the source fills a slot, the
// destination reads it there. A node that dies, lies or stops taking its packets is detached, each
// of its buffers is found and the others notice nothing. Called by fabricd's loop through Port.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "emu/base/result.h"
#include "emu/clock/follow.h"
#include "emu/ring/fd.h"
#include "emu/wire/frame.h"
#include "fabric/port/packets.h"
#include "fabric/port/port.h"

namespace fabric {

class ShmSession;

struct ShmPortOptions {
  std::string socket_path;            // <run>/fabric.sock
  std::size_t slots_per_node = 4096;  // packets that a node may have in the fabric at once
  EdgeRules rules;
  emu::FollowOptions follow;
  emu::Objection objection;  // attached by another port, link out of service
};

class ShmPort final : public Port {
 public:
  // Listens at the socket; whoever calls holds the pid file of the run directory.
  static emu::Result<std::unique_ptr<ShmPort>> open(const ShmPortOptions& options,
                                                    PacketMemory& memory);
  ~ShmPort() override;

  void service(std::uint64_t host_ns, Inbox& inbox) override;
  void receive(emu::Cycle now, Inbox& inbox) override;
  void deliver(emu::NodeId node, PacketHandle packet, const emu::RxDesc& desc) override;
  void injected(emu::NodeId node, const emu::Injected& event) override;
  void answer(emu::NodeId node, const emu::Answer& answer) override;
  void cut(emu::NodeId node, const std::string& reason) override;
  emu::Cycle follow(emu::Cycle now, std::uint64_t host_ns) override;
  void flush(emu::Cycle now) override;
  bool prepare_sleep() override;
  bool end_sleep(bool readable) override;
  std::vector<int> wait_fds() const override { return {epoll_.get()}; }
  std::uint64_t next_service_ns() const override;
  const AttachCounters& counters(emu::NodeId node) const override { return counters_[node]; }
  bool attached(emu::NodeId node) const override { return sessions_[node] != nullptr; }

 private:
  struct Greeting {  // connected, has not said hello yet
    emu::UniqueFd socket;
    std::uint64_t since_ns = 0;
  };

  ShmPort(const ShmPortOptions& options, PacketMemory& memory);
  void poll_sockets(std::uint64_t host_ns, Inbox& inbox);
  void accept_all(std::uint64_t host_ns);
  void greet(std::uint64_t host_ns, Inbox& inbox);
  bool hello(Greeting& greeting, Inbox& inbox);  // true: done with it
  emu::Result<emu::NodeId> admit_hello(std::span<const std::byte> message) const;
  emu::Result<void> open_session(emu::NodeId node, emu::UniqueFd& socket);
  emu::Result<void> introduce_pools(ShmSession& session);
  void receive_from(ShmSession& session, emu::Cycle now, Inbox& inbox);
  void take_back_released(ShmSession& session);
  bool progress(ShmSession& session, std::uint64_t elapsed_ns);
  void lose(emu::NodeId node, std::string reason, Inbox& inbox);
  void lose_broken(Inbox& inbox);
  void reap_drained();

  ShmPortOptions options_;
  PacketMemory& memory_;
  std::array<std::unique_ptr<ShmSession>, emu::kNodesMax> sessions_;
  std::vector<ShmSession*> live_;  // the attached ones, for the loops
  // cold
  std::array<AttachCounters, emu::kNodesMax> counters_{};
  std::vector<std::unique_ptr<ShmSession>> draining_;  // lost; packets still in the fabric
  std::vector<Greeting> greetings_;
  std::string shortage_;  // why the last node could not be let in, as the log has it
  std::uint64_t serviced_ns_ = 0;
  bool service_due_ = false;  // now, whenever the last one was
  emu::UniqueFd listener_;
  emu::UniqueFd epoll_;
};

}  // namespace fabric
