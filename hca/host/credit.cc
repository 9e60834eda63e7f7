// Credit congestion control (ACP section 4.2): a packet's injection is the credit for the next one.
// Best effort: a scheme of congestion.h, C_b packets per HCA with that of the paper; it waits here.
// Real time with an admitted rate: C_i = (b_i / B) M packets per QP, published in the QP's page, so
// that a post without credit fails at once.
#include <algorithm>

#include "emu/base/check.h"
#include "hca/host/state.h"

namespace hca {

namespace {

// Three of the papers' frame times (30 a second) at the peak rate: one frame leaves, one is
// waiting, one is being posted. At other frame rates it is the same time, and so as many bursts as
// a rate limit's max_burst_sz says: a sender makes its messages no longer.
constexpr emu::EmuNs kCreditFloorNs = 100'000'000;
// One leaves, one is being posted: with a single credit each packet of a slow stream was posted
// when its own time had come, for that is when the one before it left.
constexpr std::uint64_t kCreditLeast = 2;

// In a packet's cookie, between the QP's number and its epoch (burst.cc): the tag of the congestion
// control, and whose it is.
constexpr int kTagShift = 25;
constexpr std::uint64_t kTagTurn = 1ull << 31;
static_assert(std::uint64_t{kCongestionTags} << kTagShift == kTagTurn);

}  // namespace

void set_credit(HostState& s, Qp& qp, std::uint64_t rate_bps, std::uint64_t peak_bps) {
  if (rate_bps == 0) {
    qp.credit_capacity = 0;
  } else {
    std::uint64_t packets = static_cast<std::uint64_t>(
        static_cast<emu::WideUint>(rate_bps) * s.options_.hca_buffer_packets / s.options_.link_bps);
    // The paper's message is a packet, ours may be a whole video frame: were C_i smaller than that,
    // it could never be posted.
    const std::uint64_t packet_bits = std::uint64_t{s.options_.packet_flits} * s.options_.flit_bits;
    packets =
        std::max(packets, static_cast<std::uint64_t>(static_cast<emu::WideUint>(peak_bps) *
                                                     kCreditFloorNs / 1'000'000'000 / packet_bits));
    qp.credit_capacity =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(packets, kCreditLeast, 1u << 24));
  }
  const bool limited = s.options_.controls.congestion_control && qp.credit_capacity > 0;
  qp.page->credit_granted.store(qp.credit_capacity + qp.credit_returned, std::memory_order_release);
  qp.page->credit_limited.store(limited ? 1 : 0, std::memory_order_release);
}

void return_credit(Qp& qp, std::uint32_t packets) {
  qp.credit_returned += packets;
  qp.page->credit_granted.store(qp.credit_capacity + qp.credit_returned, std::memory_order_release);
}

bool best_effort_blocked(const HostState& s) { return s.congestion_->blocked(s.now_); }
bool may_send_best_effort(HostState& s, emu::NodeId dest) {
  // What stays in the node meets no congestion.
  return stays_here(s, dest) || s.congestion_->may_send(dest, s.now_);
}

void choose_congestion(HostState& s) {
  const bool on = s.options_.controls.congestion_control;
  s.congestion_ =
      make_congestion(on ? s.options_.congestion : "none", congestion_options(s.options_));
  CHECK(s.congestion_ != nullptr);
  s.congestion_turn_ = !s.congestion_turn_;
}

std::uint64_t congestion_cookie(HostState& s, const emu::TxDesc& desc) {
  const std::uint16_t packets = desc.more_packets + 1U;
  const auto flits = static_cast<std::uint16_t>(desc.flits / packets);
  std::uint16_t tag = 0;  // the same for all of a train
  for (int i = 0; i < packets; ++i) tag = s.congestion_->handed_on(desc.dest, flits, s.now_);
  return std::uint64_t{tag} << kTagShift | (s.congestion_turn_ ? kTagTurn : 0);
}

void congestion_came_back(HostState& s, std::uint64_t cookie) {
  const bool turn = (cookie & kTagTurn) != 0;
  if (turn != s.congestion_turn_) return;
  const auto tag = static_cast<std::uint16_t>((cookie >> kTagShift) & (kCongestionTags - 1U));
  for (std::uint32_t i = packets_of_cookie(cookie); i > 0; --i)
    s.congestion_->came_back(tag, s.now_);
}

}  // namespace hca
