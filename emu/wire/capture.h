// A capture of what crosses the fabric: <run>/capture.ring, made by fabricd when somebody asks for
// it, read by flitnet-capture; either has a byte of the file locked while it lives. In: packets as
// they arrive at their HCA, with their emulated times. Out: the same, in order; what a slow reader
// has no room for is counted and left out, so that nobody waits for it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "emu/base/result.h"
#include "emu/base/units.h"
#include "emu/ring/region.h"
#include "emu/ring/spsc.h"
#include "emu/wire/message.h"

namespace emu {

inline constexpr std::uint32_t kCaptureMagic = 0x70436c46;  // "FlCp"
inline constexpr std::uint32_t kCaptureVersion = 1;
inline constexpr std::size_t kCaptureSlots = 2048;

struct CapturedPacket {
  Cycle head_cycle;     // its head flit left the source HCA
  Cycle arrival_cycle;  // its tail flit reached the destination's
  std::uint16_t length;
  NodeId src;
  NodeId dest;
  Vl vl;
  TrafficClass traffic_class;
  std::array<std::uint8_t, kPacketBytesMax> bytes;  // from the LRH to the VCRC
};
static_assert(std::is_trivially_copyable_v<CapturedPacket>);

// The ring's entries follow at the next cache line.
struct CaptureHead {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t cycle_ps;
  std::atomic<std::uint64_t> left_out;
  std::atomic<std::uint32_t> begun;  // 1: somebody reads, or has
  std::uint32_t pad[9];
};
static_assert(sizeof(CaptureHead) == kCacheLine);

class CaptureWriter {
 public:
  // Replaces the file of a writer that died; no other writer of the path may live. `nodes`: a bit
  // for each NodeId whose packets are wanted, to it or from it.
  static Result<CaptureWriter> open(const std::string& path, CycleTime cycle_time,
                                    std::uint64_t nodes);
  CaptureWriter(CaptureWriter&&) = default;
  CaptureWriter& operator=(CaptureWriter&&) = delete;
  ~CaptureWriter();  // removes the file; the reader sees that we are gone

  // A train comes apart here.
  void packet(const RxDesc& desc, NodeId dest, const std::uint8_t* bytes);
  // Whether a process reads. One that has not begun has 2 s from the first call on.
  bool read_by_somebody(std::uint64_t host_ns);

 private:
  CaptureWriter() = default;
  void push(const RxDesc& desc, NodeId dest, std::size_t length);
  CaptureHead* head() const { return reinterpret_cast<CaptureHead*>(file_.data()); }

  Region file_;
  std::string path_;
  RingProducer<CapturedPacket> ring_;
  std::uint64_t nodes_ = 0;
  std::uint64_t left_out_ = 0;
  std::uint64_t asked_ns_ = 0;  // host time of the first look for a reader
  CapturedPacket next_{};
};

class CaptureReader {
 public:
  static Result<CaptureReader> open(const std::string& path);

  bool next(CapturedPacket& packet) { return ring_.pop(packet); }
  CycleTime cycle_time() const { return {cycle_ps_}; }
  std::uint64_t left_out() const { return head()->left_out.load(std::memory_order_relaxed); }
  // Nothing more will come: look once more, then leave.
  bool ended() const;

 private:
  CaptureReader() = default;
  const CaptureHead* head() const { return reinterpret_cast<const CaptureHead*>(file_.data()); }

  Region file_;
  RingConsumer<CapturedPacket> ring_;
  std::uint64_t cycle_ps_ = 0;
};

}  // namespace emu
