#include "tests/sim/stream.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "emu/base/check.h"

namespace sim {

namespace {

constexpr emu::EmuNs kAheadNs = 90'000'000;  // frames are posted so long before their time
constexpr std::uint32_t kSlackNs = 500'000;  // the last packet leaves so long before the deadline
constexpr std::uint8_t kRealTimeSl = 1;

Path stream_path(int peer, std::uint32_t peer_qpn) {
  Path path;
  path.dest = static_cast<emu::NodeId>(peer);
  path.dest_qpn = peer_qpn;
  path.sl = kRealTimeSl;
  path.timeout = 14;
  return path;
}

}  // namespace

NodeApp::NodeApp(Cluster& owner, int number)
    : cluster(owner), node(number), app(owner.host(number)) {}

Stream::Stream(const Scenario& scenario, std::size_t index, NodeApp& from, NodeApp& to)
    : plan_(scenario.streams[index]),
      clip_(scenario.clips[scenario.clip_of_stream[index]]),
      rate_(scenario.rates[scenario.clip_of_stream[index]]),
      clip_index_(scenario.clip_of_stream[index]),
      from_(from),
      to_(to),
      from_index_(from.node),
      to_index_(to.node),
      deadlines_(plan_.rate) {
  std::uint32_t largest = 0;
  for (const tools::Frame& frame : clip_.frames) largest = std::max(largest, frame.bytes);
  buffer_bytes_ = largest + kHeaderBytes;
  headers_.resize(kSlots * kHeaderBytes);
  buffers_.resize(std::size_t{kSlots} * buffer_bytes_);
  header_keys_ = from_.app.reg(headers_.data(), headers_.size(), 0);
  buffer_keys_ = to_.app.reg(buffers_.data(), buffers_.size(), hca::kAccessLocalWrite);
  send_cq_ = from_.app.make_cq(2 * kSlots);
  recv_cq_ = to_.app.make_cq(2 * kSlots);
  send_ = from_.app.make_qp(hca::QpType::rc, send_cq_, send_cq_, {kSlots, 1, 2, 1, 0});
  recv_ = to_.app.make_qp(hca::QpType::rc, recv_cq_, recv_cq_, {1, kSlots, 1, 1, 0});
  const emu::Cycle now = from_.cluster.now();
  CHECK(from_.app.connect(send_, stream_path(to_.node, recv_.number), now) == 0);
  CHECK(to_.app.connect(recv_, stream_path(from_.node, send_.number), now) == 0);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) post_receive(slot);
}

void Stream::ask_admission() {
  CHECK(from_.cluster.host(from_.node)
            .request_rate(from_.app.client(), send_.number, rate_.mean_bps, rate_.peak_bps,
                          from_.cluster.now()) == 0);
}

emu::EmuNs Stream::frame_ns(std::uint64_t number) const {
  return start_ns_ + plan_.phase_us * emu::EmuNs{1000} + plan_.rate.ns_of(number);
}

void Stream::start(emu::EmuNs start_ns, std::uint64_t frames) {
  start_ns_ = start_ns;
  frames_ = frames;
  running_ = true;
  deadlines_ = tools::DeadlineMeter(plan_.rate, frame_ns(1));
}

void Stream::post_receive(std::uint32_t slot) {
  const hca::Sge sge{reinterpret_cast<std::uint64_t>(&buffers_[std::size_t{slot} * buffer_bytes_]),
                     buffer_bytes_, buffer_keys_.lkey};
  CHECK(to_.app.post_recv(recv_, slot, {&sge, 1}) == 0);
}

bool Stream::post_frame() {
  const std::size_t index = (plan_.frame + sent_) % clip_.frames.size();
  const tools::Frame& frame = clip_.frames[index];
  std::uint8_t* header = &headers_[sent_ % kSlots * kHeaderBytes];
  std::memset(header, 0, kHeaderBytes);
  std::memcpy(header, &sent_, sizeof sent_);
  const std::array sges{
      hca::Sge{reinterpret_cast<std::uint64_t>(header), kHeaderBytes, header_keys_.lkey},
      hca::Sge{reinterpret_cast<std::uint64_t>(clip_.stream.data()) + frame.offset, frame.bytes,
               from_.clip_keys[clip_index_].lkey}};
  const std::uint32_t payload = send_.page->packet_payload.load();
  const std::uint32_t packets = (frame.bytes + kHeaderBytes + payload - 1) / payload;
  const tools::LaunchPlan launch =
      tools::plan_launch(frame_ns(sent_), plan_.rate, packets, kSlackNs, 0, packets);
  const Send send{.wr_id = sent_,
                  .sges = sges,
                  .launch_ns = launch.launch_ns,
                  .launch_span_ns = launch.span_ns};
  if (from_.app.post(send_, send) != 0) return false;
  ++sent_;
  return true;
}

void Stream::check_frame(const hca::Cqe& cqe) {
  if (cqe.status != hca::WcStatus::success) {
    failed_ = true;
    return;
  }
  const auto slot = static_cast<std::uint32_t>(cqe.wr_id);
  const std::uint8_t* bytes = &buffers_[std::size_t{slot} * buffer_bytes_];
  std::uint64_t number = 0;
  std::memcpy(&number, bytes, sizeof number);
  const tools::Frame& frame = clip_.frames[(plan_.frame + number) % clip_.frames.size()];
  const std::uint8_t* expected = clip_.stream.data() + frame.offset;
  const std::uint32_t length = cqe.byte_len - kHeaderBytes;
  if (length != frame.bytes) {
    bytes_corrupt_ += std::max(length, frame.bytes);
  } else if (std::memcmp(bytes + kHeaderBytes, expected, length) != 0) {
    for (std::uint32_t i = 0; i < length; ++i) {
      bytes_corrupt_ += bytes[kHeaderBytes + i] != expected[i] ? 1 : 0;
    }
  }
  deadlines_.arrive(number, cqe.timestamp_ns);
  ++received_;
  post_receive(slot);
}

void Stream::tick() {
  if (!running_ || failed_) return;
  const emu::EmuNs now = from_.cluster.now_ns();
  while (sent_ < frames_ && sent_ - completed_ < kSlots && frame_ns(sent_) <= now + kAheadNs) {
    if (!post_frame()) {
      ++credit_refusals_;
      break;
    }
  }
  hca::Cqe cqe;
  while (App::poll(send_cq_, cqe)) {
    if (cqe.status != hca::WcStatus::success) failed_ = true;
    ++completed_;
  }
  while (App::poll(recv_cq_, cqe)) check_frame(cqe);
}

}  // namespace sim
