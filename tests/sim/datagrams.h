// Generated traffic of one node over UD: Poisson best effort to uniform destinations, or control at
// even gaps. Every message is numbered per destination, so that lost and repeated ones are known.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/base/prng.h"
#include "tests/sim/stream.h"

namespace sim {

struct DatagramOptions {
  std::uint8_t sl = 0;
  std::uint32_t flits = 40;
  double gap_ns = 0;    // mean
  bool poisson = true;  // else even
  std::uint64_t seed = 1;
};

class Datagrams {
 public:
  Datagrams(const DatagramOptions& options, NodeApp& node, std::size_t nodes);
  std::uint32_t qpn() const { return qp_.number; }
  void connect(const std::vector<std::uint32_t>& qpn_of_node) { peers_ = qpn_of_node; }
  void start(emu::EmuNs start_ns, emu::EmuNs end_ns);
  void tick();

  std::uint64_t sent() const { return sent_; }
  std::uint64_t completed() const { return completed_; }
  std::uint64_t received() const { return received_; }
  std::uint64_t duplicated() const { return duplicated_; }
  // Posted so far and received so far of each peer, for counting what is lost in the end.
  const std::vector<std::uint64_t>& sent_to() const { return sent_to_; }
  const std::vector<std::uint64_t>& received_from() const { return received_from_; }

 private:
  static constexpr std::uint32_t kSlots = 1024;
  void post_one();
  void post_receive(std::uint32_t slot);
  void count(const hca::Cqe& cqe);

  DatagramOptions options_;
  NodeApp& node_;
  emu::Prng prng_;
  Completions send_cq_;
  Completions recv_cq_;
  Queue qp_;
  std::uint32_t payload_ = 0;
  std::vector<std::uint8_t> out_;
  std::vector<std::uint8_t> in_;
  hca::MrKeys out_keys_;
  hca::MrKeys in_keys_;
  std::vector<std::uint32_t> peers_;
  double next_ns_ = 0;
  emu::EmuNs end_ns_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t duplicated_ = 0;
  std::vector<std::uint64_t> sent_to_;
  std::vector<std::uint64_t> received_from_;
  std::vector<std::vector<bool>> seen_;  // [source][number]
};

}  // namespace sim
