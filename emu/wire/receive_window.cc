#include "emu/wire/receive_window.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "emu/base/check.h"

namespace emu {

ReceiveWindow::ReceiveWindow(std::uint32_t frames, std::size_t frame_bytes_max)
    : mask_(frames - 1),
      payload_max_(frame_bytes_max - kFrameOverhead),
      lengths_(frames),
      bytes_(frames * payload_max_) {
  CHECK(std::has_single_bit(frames));
}

void ReceiveWindow::reset() {
  std::ranges::fill(lengths_, std::uint16_t{0});
  read_ = next_ = 0;
  offset_ = 0;
  records_delivered_ = 0;
  broken_ = have_header_ = ready_ = false;
}

bool ReceiveWindow::keep(std::uint64_t sequence, std::span<const std::byte> payload) {
  if (payload.empty() || payload.size() > payload_max_ || payload.size() % 4 != 0) return false;
  if (sequence < next_ || sequence >= limit()) return false;
  std::uint16_t& length = lengths_[sequence & mask_];
  if (length != 0) return false;
  length = static_cast<std::uint16_t>(payload.size());
  std::memcpy(&bytes_[(sequence & mask_) * payload_max_], payload.data(), payload.size());
  while (next_ < limit() && lengths_[next_ & mask_] != 0) ++next_;
  return true;
}

std::uint64_t ReceiveWindow::sack() const {
  std::uint64_t bits = 0;
  const std::uint64_t end = std::min(limit(), next_ + 65);
  for (std::uint64_t sequence = next_ + 1; sequence < end; ++sequence) {
    if (lengths_[sequence & mask_] != 0) bits |= std::uint64_t{1} << (sequence - next_ - 1);
  }
  return bits;
}

void ReceiveWindow::release_read() {
  if (read_ == next_ || left() != 0) return;
  lengths_[read_ & mask_] = 0;
  ++read_;
  offset_ = 0;
}

std::optional<Record> ReceiveWindow::front() {
  while (!ready_) {
    if (broken_ || read_ == next_) return std::nullopt;
    if (!have_header_) {
      std::memcpy(&header_, at_offset(), sizeof header_);  // lengths are multiples of 4
      if (!well_formed(header_)) {
        broken_ = true;
        return std::nullopt;
      }
      offset_ += sizeof header_;
      have_header_ = true;
      assembled_bytes_ = 0;
    }
    const std::size_t body = padded(header_.length);
    if (assembled_bytes_ == 0 && left() >= body) {
      direct_bytes_ = body;
      body_ = body == 0 ? assembled_.data() : at_offset();
      ready_ = true;
      break;
    }
    const std::size_t n = std::min(left(), body - assembled_bytes_);
    if (n != 0) std::memcpy(&assembled_[assembled_bytes_], at_offset(), n);
    assembled_bytes_ += n;
    offset_ += n;
    release_read();
    if (assembled_bytes_ == body) {
      direct_bytes_ = 0;
      body_ = assembled_.data();
      ready_ = true;
    }
  }
  return Record{header_.kind, {body_, header_.length}};
}

void ReceiveWindow::pop() {
  CHECK(ready_);
  offset_ += direct_bytes_;
  ready_ = have_header_ = false;
  ++records_delivered_;
  release_read();
}

}  // namespace emu
