#include "tools/load/flow.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tools/load/kinds.h"
#include "tools/load/message.h"

namespace tools {
namespace {

constexpr std::uint32_t kQkey = 0x0f11;
// Below the flow's number in a work request: bit 32 says receive, the rest is the buffer or count.
constexpr std::uint64_t kCountMask = 0xffffffff;

}  // namespace

Flow::Flow(FlowOptions options, const std::vector<std::string>& to, std::uint64_t token)
    : options_(std::move(options)),
      to_(options_.to.value_or(to)),
      token_(token),
      prng_(options_.seed) {
  make_clocks();
  send_slots_ = sends_for_rate();
}

std::uint32_t Flow::sends_for_rate() const {
  const ArrivalOptions& all = options_.arrivals;
  const double most = all.factors.empty() ? 1 : std::ranges::max(all.factors);
  const double due = kSendsNs / all.gap_ns * most * static_cast<double>(clocks_.size());
  return std::bit_ceil(
      static_cast<std::uint32_t>(std::clamp<double>(due, kSendsLeast, kSendsMost)));
}

void Flow::make_clocks() {
  const ArrivalOptions& all = options_.arrivals;
  if (all.kind != ArrivalKind::on_off || !options_.to) {
    clocks_.push_back({.arrivals = Arrivals(all, prng_()), .to = {}});
    return;
  }
  for (std::size_t i = 0; i < to_.size(); ++i) {
    ArrivalOptions one = all;
    for (double& factor : one.factors) {
      factor = static_cast<double>(i) + 0.5 < factor * static_cast<double>(to_.size()) ? 1 : 0;
    }
    if (!one.factors.empty() && std::ranges::max(one.factors) == 0) continue;
    clocks_.push_back({.arrivals = Arrivals(one, prng_()), .to = to_[i]});
  }
}

// Of messages that are due at the same time the first connection's comes first.
Flow::Clock* Flow::next_clock() {
  const auto next = std::ranges::min_element(
      clocks_, {}, [](const Clock& clock) { return clock.arrivals.next_ns(); });
  return next == clocks_.end() ? nullptr : &*next;
}

emu::Result<void> Flow::check(const Device& device) const {
  const std::uint32_t most = 128U << device.mtu();
  if (options_.payload_bytes <= most) return {};
  return emu::fail(
      "{}: packets with {} bytes of payload, the port takes {}: give fewer {}, or the cluster a "
      "larger hca.mtu",
      options_.kind, options_.payload_bytes, most, flits_option(options_.kind));
}

emu::Result<void> Flow::open(const Device& device, const CompletionQueue& cq,
                             std::uint64_t wr_base) {
  wr_base_ = wr_base;
  receive_stride_ = (kGrhBytes + options_.payload_bytes + 63) / 64 * 64;
  auto sends = Region::create(device, "flitnet-load-out",
                              std::size_t{send_slots_} * options_.payload_bytes, 0);
  if (!sends) return std::unexpected(sends.error());
  sends_ = *std::move(sends);
  auto receives = Region::create(device, "flitnet-load-in", kReceives * receive_stride_,
                                 IBV_ACCESS_LOCAL_WRITE);
  if (!receives) return std::unexpected(receives.error());
  receives_ = *std::move(receives);
  auto qp =
      create_qp(device, IBV_QPT_UD, cq, cq, {.sends = send_slots_, .receives = kReceives}, kQkey);
  if (!qp) return std::unexpected(qp.error());
  qp_ = *std::move(qp);
  endpoint_ = device.endpoint(*qp_, 0, kQkey);
  for (std::uint32_t buffer = 0; buffer < kReceives; ++buffer) {
    if (auto posted = post_receive(buffer); !posted) return posted;
  }
  return ready_ud(qp_.get(), endpoint_.psn);
}

emu::Result<void> Flow::add_destination(const Device& device, const std::string& node,
                                        const Endpoint& remote, std::uint16_t source,
                                        std::uint64_t token) {
  ibv_ah_attr way = device.way_to(remote, options_.sl);
  std::unique_ptr<ibv_ah, DestroyAh> ah(ibv_create_ah(device.pd(), &way));
  if (!ah) return emu::fail("{}: address of {}: {}", options_.kind, node, std::strerror(errno));
  destinations_.push_back(
      {.node = node, .ah = std::move(ah), .remote = remote, .source = source, .token = token});
  return {};
}

void Flow::drop_destination(const std::string& node) {
  for (Destination& to : destinations_) {
    if (to.node == node) to.alive = false;
  }
  std::erase_if(clocks_, [&node](const Clock& clock) { return clock.to == node; });
  next_ = nullptr;
  next_to_.reset();
}

std::uint64_t Flow::sent_to(const std::string& node) const {
  for (const Destination& to : destinations_) {
    if (to.node == node) return to.sent;
  }
  return 0;
}

std::uint16_t Flow::add_source(const std::string& node) {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].node != node) continue;
    sources_[i].seen = {};  // it was started again and counts from 0
    sources_[i].sent.reset();
    return static_cast<std::uint16_t>(i);
  }
  sources_.push_back({.node = node, .seen = {}, .sent = {}});
  return static_cast<std::uint16_t>(sources_.size() - 1);
}

void Flow::end_source(const std::string& node, std::uint64_t sent) {
  for (Source& source : sources_) {
    if (source.node == node) source.sent = sent;
  }
}

bool Flow::sources_whole() const {
  return std::ranges::all_of(sources_, [](const Source& source) {
    return !source.sent || source.seen.lost(*source.sent) == 0;
  });
}

void Flow::settle() {
  counts_.lost = 0;
  for (const Source& source : sources_) {
    if (source.sent) counts_.lost += source.seen.lost(*source.sent);
  }
}

void Flow::start(emu::EmuNs now_ns, emu::EmuNs until_ns) {
  if (started_) return;
  started_ = true;
  until_ns_ = until_ns;
  for (Clock& clock : clocks_) clock.arrivals.start(now_ns);
}

emu::Result<void> Flow::tick(const Device& device, emu::EmuNs now_ns) {
  used_ = std::max(static_cast<double>(completed_ - completed_before_) / send_slots_,
                   taken_ / (kReceives / 2.0));
  completed_before_ = completed_;
  taken_ = 0;
  const emu::EmuNs ahead_ns =
      device.has_launch() ? std::uint64_t{options_.ahead_ms} * 1'000'000 : 0;
  while (started_ && !finished_) {
    if (next_ == nullptr) next_ = next_clock();
    if (next_ == nullptr) {
      finished_ = true;
      break;
    }
    if (next_->arrivals.next_ns() < now_ns && device.has_launch() && !queue_was_full_) {
      ++counts_.late;
      next_->arrivals.catch_up(now_ns);
    }
    const emu::EmuNs launch_ns = next_->arrivals.next_ns();
    if (!next_to_) next_to_ = pick(*next_);
    if (launch_ns >= until_ns_ || !next_to_) {
      finished_ = true;
      break;
    }
    if (launch_ns > now_ns + ahead_ns) {
      queue_was_full_ = false;
      break;
    }
    const bool room = posted_ - completed_ < send_slots_;
    const int error =
        room ? post(device, destinations_[*next_to_], launch_ns, is_last(*next_)) : ENOMEM;
    if (error == ENOMEM) {
      ++counts_.refused;
      queue_was_full_ = true;
      break;
    }
    if (error != 0) return emu::fail("{}: cannot post: {}", options_.kind, std::strerror(error));
    // Without launch times every message is posted after its time.
    if (device.has_launch() && launch_ns < now_ns) count_behind(now_ns - launch_ns);
    next_->arrivals.advance();
    next_ = nullptr;
    next_to_.reset();
  }
  return {};
}

void Flow::count_behind(emu::EmuNs by_ns) {
  ++counts_.behind;
  counts_.behind_ns += by_ns;
  counts_.behind_ns_max = std::max(counts_.behind_ns_max, by_ns);
}

bool Flow::is_last(const Clock& clock) const {
  const bool others = std::ranges::any_of(clocks_, [&](const Clock& other) {
    return &other != &clock && other.arrivals.next_ns() < until_ns_;
  });
  if (others) return false;
  Arrivals after = clock.arrivals;
  after.advance();
  return after.next_ns() >= until_ns_;
}

std::optional<std::size_t> Flow::pick(const Clock& clock) {
  if (!clock.to.empty()) {
    for (std::size_t i = 0; i < destinations_.size(); ++i) {
      if (destinations_[i].alive && destinations_[i].node == clock.to) return i;
    }
    return std::nullopt;
  }
  const auto alive = static_cast<std::uint32_t>(
      std::ranges::count_if(destinations_, [](const Destination& to) { return to.alive; }));
  if (alive == 0) return std::nullopt;
  if (options_.hot_share > 0 && prng_.uniform() < options_.hot_share) {
    for (std::size_t i = 0; i < destinations_.size(); ++i) {
      if (destinations_[i].alive && destinations_[i].node == options_.hot_node) return i;
    }
  }
  std::uint32_t left = prng_.below(alive);
  for (std::size_t i = 0; i < destinations_.size(); ++i) {
    if (destinations_[i].alive && left-- == 0) return i;
  }
  return std::nullopt;
}

int Flow::post(const Device& device, Destination& to, emu::EmuNs launch_ns, bool last) {
  const std::size_t slot = posted_ % send_slots_ * options_.payload_bytes;
  write_load_message({.source = to.source,
                      .kind = options_.number,
                      .number = to.sent,
                      .launch_ns = launch_ns,
                      .token = to.token},
                     sends_.bytes().subspan(slot, options_.payload_bytes));
  ibv_sge sge = sends_.sge(slot, options_.payload_bytes);
  ibv_send_wr wr{};
  wr.wr_id = wr_base_ | ((posted_ + 1) & kCountMask);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  // The last before a full queue is always signalled: send_slots_ is a multiple of kSignalEvery.
  static_assert(kSendsLeast % kSignalEvery == 0 && std::has_single_bit(kSendsLeast) &&
                std::has_single_bit(kSendsMost));
  wr.send_flags = last || (posted_ + 1) % kSignalEvery == 0 ? unsigned{IBV_SEND_SIGNALED} : 0U;
  wr.wr.ud.ah = to.ah.get();
  wr.wr.ud.remote_qpn = to.remote.qpn;
  wr.wr.ud.remote_qkey = to.remote.qkey;
  if (const int error = device.set_launch(qp_.get(), launch_ns, 0); error != 0) return error;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(qp_.get(), &wr, &bad); error != 0) return error;
  last_signalled_ = last;
  ++posted_;
  ++to.sent;
  ++counts_.sent;
  return 0;
}

emu::Result<void> Flow::post_receive(std::uint32_t buffer) {
  ibv_sge sge = receives_.sge(buffer * receive_stride_, receive_stride_);
  ibv_recv_wr wr{};
  wr.wr_id = wr_base_ | (std::uint64_t{1} << 32) | buffer;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(qp_.get(), &wr, &bad);
  if (error != 0) return emu::fail("cannot post a receive: {}", std::strerror(error));
  return {};
}

void Flow::complete(const Completion& done, bool is_receive) {
  if (done.status != IBV_WC_SUCCESS) ++counts_.errors;
  if (is_receive) {
    const auto buffer = static_cast<std::uint32_t>(done.wr_id & kCountMask);
    if (buffer >= kReceives) return;
    ++taken_;
    if (done.status == IBV_WC_SUCCESS) receive(done);
    if (!post_receive(buffer)) ++counts_.errors;
    return;
  }
  // The low 32 bits of the count of posts up to this one: all of them are done.
  const std::uint64_t newly = ((done.wr_id & kCountMask) - completed_) & kCountMask;
  if (newly <= posted_ - completed_) completed_ += newly;
}

void Flow::receive(const Completion& done) {
  const auto buffer = static_cast<std::uint32_t>(done.wr_id & kCountMask);
  if (done.bytes < kGrhBytes || done.bytes > receive_stride_) return;
  const auto message = std::span<const std::uint8_t>(receives_.bytes())
                           .subspan(buffer * receive_stride_ + kGrhBytes, done.bytes - kGrhBytes);
  const auto stamp = read_load_stamp(message);
  if (!stamp) {
    counts_.corrupt_bytes += std::max<std::size_t>(message.size(), 1);
    return;
  }
  if (stamp->token != token_ || stamp->source >= sources_.size()) {
    ++counts_.foreign;
    return;
  }
  if (!sources_[stamp->source].seen.take(stamp->number)) {
    ++counts_.duplicated;
    return;
  }
  ++counts_.received;
  counts_.received_bytes += message.size();
  counts_.corrupt_bytes += corrupt_load_bytes(*stamp, message);
  latency_.add(done.time_ns > stamp->launch_ns ? done.time_ns - stamp->launch_ns : 0);
}

}  // namespace tools
