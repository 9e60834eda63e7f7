#include "tests/sim/datagrams.h"

#include <algorithm>
#include <cstring>

#include "emu/base/check.h"

namespace sim {

namespace {

constexpr emu::EmuNs kDatagramsAheadNs = 40'000'000;
constexpr std::uint32_t kQkey = 0x464c;
constexpr std::uint32_t kUdHeaders = 8 + 12 + 8 + 4 + 2;  // LRH BTH DETH ICRC VCRC

struct Stamp {
  std::uint64_t number;
  std::uint32_t source;
  std::uint32_t reserved;
};

}  // namespace

Datagrams::Datagrams(const DatagramOptions& options, NodeApp& node, std::size_t nodes)
    : options_(options), node_(node), prng_(options.seed) {
  const std::uint32_t flit_bytes = node.cluster.config().network.flit_bits / 8;
  payload_ = std::min((options.flits * flit_bytes - kUdHeaders) & ~3u,
                      node.cluster.config().datagram_bytes());
  out_.resize(std::size_t{kSlots} * payload_);
  in_.resize(std::size_t{kSlots} * (payload_ + hca::kGrhBytes));
  out_keys_ = node.app.reg(out_.data(), out_.size(), 0);
  in_keys_ = node.app.reg(in_.data(), in_.size(), hca::kAccessLocalWrite);
  send_cq_ = node.app.make_cq(2 * kSlots);
  recv_cq_ = node.app.make_cq(2 * kSlots);
  qp_ = node.app.make_qp(hca::QpType::ud, send_cq_, recv_cq_, {kSlots, kSlots, 1, 1, 0});
  CHECK(node.app.ready_ud(qp_, kQkey, node.cluster.now()) == 0);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) post_receive(slot);
  sent_to_.resize(nodes);
  received_from_.resize(nodes);
  seen_.resize(nodes);
}

void Datagrams::start(emu::EmuNs start_ns, emu::EmuNs end_ns) {
  next_ns_ = static_cast<double>(start_ns) + prng_.uniform() * options_.gap_ns;
  end_ns_ = end_ns;
}

void Datagrams::post_receive(std::uint32_t slot) {
  const std::uint32_t bytes = payload_ + hca::kGrhBytes;
  const hca::Sge sge{reinterpret_cast<std::uint64_t>(&in_[std::size_t{slot} * bytes]), bytes,
                     in_keys_.lkey};
  CHECK(node_.app.post_recv(qp_, slot, {&sge, 1}) == 0);
}

void Datagrams::post_one() {
  auto peer = prng_.below(static_cast<std::uint32_t>(peers_.size() - 1));
  if (peer >= static_cast<std::uint32_t>(node_.node)) ++peer;
  std::uint8_t* bytes = &out_[sent_ % kSlots * payload_];
  const Stamp stamp{sent_to_[peer], static_cast<std::uint32_t>(node_.node), 0};
  std::memcpy(bytes, &stamp, sizeof stamp);
  const hca::Sge sge{reinterpret_cast<std::uint64_t>(bytes), payload_, out_keys_.lkey};
  const Send send{.wr_id = sent_,
                  .sges = {&sge, 1},
                  .remote_qpn = peers_[peer],
                  .remote_qkey = kQkey,
                  .dlid = emu::lid_of(static_cast<emu::NodeId>(peer)),
                  .sl = options_.sl,
                  .launch_ns = static_cast<std::uint64_t>(next_ns_)};
  CHECK(node_.app.post(qp_, send) == 0);
  ++sent_;
  ++sent_to_[peer];
}

void Datagrams::count(const hca::Cqe& cqe) {
  const auto slot = static_cast<std::uint32_t>(cqe.wr_id);
  Stamp stamp{};
  std::memcpy(&stamp, &in_[std::size_t{slot} * (payload_ + hca::kGrhBytes) + hca::kGrhBytes],
              sizeof stamp);
  CHECK(cqe.status == hca::WcStatus::success && stamp.source < seen_.size());
  auto& seen = seen_[stamp.source];
  if (seen.size() <= stamp.number) seen.resize(stamp.number + 1);
  if (seen[stamp.number]) {
    ++duplicated_;
  } else {
    ++received_;
    ++received_from_[stamp.source];
  }
  seen[stamp.number] = true;
  post_receive(slot);
}

void Datagrams::tick() {
  const emu::EmuNs now = node_.cluster.now_ns();
  while (next_ns_ < static_cast<double>(end_ns_) && sent_ - completed_ < kSlots &&
         next_ns_ <= static_cast<double>(now + kDatagramsAheadNs)) {
    post_one();
    next_ns_ += options_.poisson ? prng_.exponential(options_.gap_ns) : options_.gap_ns;
  }
  hca::Cqe cqe;
  while (App::poll(send_cq_, cqe)) ++completed_;
  while (App::poll(recv_cq_, cqe)) count(cqe);
}

}  // namespace sim
