// The receiving half of a channel. In: authenticated payloads in any order, each perhaps twice.
// Out: the records, once and in order, and what to acknowledge. Called by emu/wire/channel alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "emu/wire/frame.h"
#include "emu/wire/record.h"

namespace emu {

struct Record {
  RecordKind kind;
  std::span<const std::byte> body;  // valid until the next call of the window
};

class ReceiveWindow {
 public:
  // `frames` is a power of two.
  ReceiveWindow(std::uint32_t frames, std::size_t frame_bytes_max);
  void reset();

  // True: it was new and has been kept.
  bool keep(std::uint64_t sequence, std::span<const std::byte> payload);
  // The record at the head of the stream, if it is complete. It stays there until pop().
  std::optional<Record> front();
  void pop();
  // The peer sent something that is no record: the stream has no meaning from here on.
  bool broken() const { return broken_; }

  std::uint64_t ack() const { return next_; }
  std::uint64_t sack() const;
  std::uint32_t window() const { return static_cast<std::uint32_t>(limit() - next_); }
  std::uint64_t limit() const { return read_ + lengths_.size(); }
  std::uint64_t records_delivered() const { return records_delivered_; }

 private:
  void release_read();
  const std::byte* at_offset() const { return &bytes_[(read_ & mask_) * payload_max_ + offset_]; }
  std::size_t left() const { return lengths_[read_ & mask_] - offset_; }

  std::uint32_t mask_;
  std::size_t payload_max_;
  // read_ <= next_: frames in between wait for the reader; from next_ on there are holes.
  std::uint64_t read_ = 0;
  std::uint64_t next_ = 0;
  std::size_t offset_ = 0;  // in frame read_
  std::uint64_t records_delivered_ = 0;
  bool broken_ = false;
  // The record at the head. A record that crosses frames is put together in assembled_.
  bool have_header_ = false;
  bool ready_ = false;
  RecordHeader header_{};
  std::size_t assembled_bytes_ = 0;
  std::size_t direct_bytes_ = 0;  // to skip in the frame at pop()
  const std::byte* body_ = nullptr;
  std::vector<std::uint16_t> lengths_;  // 0: not arrived
  std::vector<std::byte> bytes_;
  std::array<std::byte, padded(kRecordBodyMax)> assembled_{};
};

}  // namespace emu
