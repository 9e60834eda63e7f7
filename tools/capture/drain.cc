#include "tools/capture/drain.h"

#include <pcap/pcap.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "emu/packet/build.h"

namespace tools {

namespace {

constexpr long kNapNs = 2'000'000;  // the ring holds more than comes in that time

struct Close {
  void operator()(pcap_t* pcap) const { pcap_close(pcap); }
  void operator()(pcap_dumper_t* dumper) const { pcap_dump_close(dumper); }
};

// ERF, type InfiniBand, as ibdump writes it: every Wireshark reads that, and LINKTYPE_INFINIBAND
// only the newer ones.
struct Record {
  std::array<std::uint8_t, 8> time;  // little endian: seconds and 2^-32 of them
  std::uint8_t type;
  std::uint8_t flags;                 // 4: lengths vary
  std::array<std::uint8_t, 2> bytes;  // with this header; big endian, as the rest
  std::array<std::uint8_t, 2> lost;
  std::array<std::uint8_t, 2> wire_bytes;
  std::array<std::uint8_t, emu::kPacketBytesMax> packet;
};
constexpr std::size_t kRecordHead = 16;
constexpr std::uint8_t kInfiniBand = 21;
static_assert(offsetof(Record, packet) == kRecordHead && alignof(Record) == 1);

std::array<std::uint8_t, 2> big(std::size_t value) {
  return {static_cast<std::uint8_t>(value >> 8), static_cast<std::uint8_t>(value)};
}

class File {
 public:
  static emu::Result<File> open(const std::string& path) {
    File file;
    file.pcap_.reset(
        pcap_open_dead_with_tstamp_precision(DLT_ERF, sizeof(Record), PCAP_TSTAMP_PRECISION_NANO));
    if (file.pcap_ == nullptr) return emu::fail("libpcap has no memory");
    file.dumper_.reset(pcap_dump_open(file.pcap_.get(), path.c_str()));
    if (file.dumper_ == nullptr) return emu::fail("{}", pcap_geterr(file.pcap_.get()));
    return file;
  }
  void write(const emu::CapturedPacket& packet, std::uint64_t at_ns) {
    pcap_pkthdr header{};
    header.ts.tv_sec = static_cast<time_t>(at_ns / 1'000'000'000);
    header.ts.tv_usec = static_cast<suseconds_t>(at_ns % 1'000'000'000);  // by the precision: ns
    const std::size_t length = std::min<std::size_t>(packet.length, packet.bytes.size());
    header.caplen = header.len = static_cast<std::uint32_t>(kRecordHead + length);
    Record record;
    const std::uint64_t part = (at_ns % 1'000'000'000 << 32) / 1'000'000'000;
    const std::uint64_t time = at_ns / 1'000'000'000 << 32 | part;
    for (std::size_t i = 0; i < record.time.size(); ++i)
      record.time[i] = static_cast<std::uint8_t>(time >> 8 * i);
    record.type = kInfiniBand;
    record.flags = 4;
    record.bytes = big(kRecordHead + length);
    record.lost = big(0);
    record.wire_bytes = big(length);
    std::memcpy(record.packet.data(), packet.bytes.data(), length);
    emu::add_left_crcs(std::as_writable_bytes(std::span(record.packet).first(length)));
    pcap_dump(reinterpret_cast<u_char*>(dumper_.get()), &header,
              reinterpret_cast<const u_char*>(&record));
  }
  // False: the disk is full or nobody reads the pipe.
  bool flush() {
    return pcap_dump_flush(dumper_.get()) == 0 && ferror(pcap_dump_file(dumper_.get())) == 0;
  }

 private:
  std::unique_ptr<pcap_t, Close> pcap_;
  std::unique_ptr<pcap_dumper_t, Close> dumper_;
};

}  // namespace

emu::Result<std::uint64_t> drain(emu::CaptureReader& ring, const DrainOptions& options,
                                 const std::atomic<bool>& stop) {
  auto file = File::open(options.write);
  if (!file) return std::unexpected(file.error());
  if (!file->flush()) return emu::fail("{} cannot be written", options.write);
  const auto packet = std::make_unique<emu::CapturedPacket>();
  const auto most_ns = static_cast<std::uint64_t>(options.seconds * 1e9);
  std::uint64_t count = 0;
  std::uint64_t first_ns = 0;
  bool enough = false;
  while (!enough) {
    const bool last_look = stop.load(std::memory_order_relaxed) || ring.ended();
    // No more than the ring holds: where more comes than the disk takes it is never empty, and who
    // says stop would not be heard.
    std::size_t taken = 0;
    while (!enough && taken < emu::kCaptureSlots && ring.next(*packet)) {
      ++taken;
      const std::uint64_t at_ns = ring.cycle_time().ns(packet->arrival_cycle);
      if (count == 0) first_ns = at_ns;
      // Not every packet is later than the first: a fabric that passes them whole hands those with
      // a launch time out after those without.
      enough = most_ns != 0 && at_ns > first_ns && at_ns - first_ns > most_ns;
      if (enough) break;
      file->write(*packet, at_ns);
      enough = ++count == options.count;
    }
    if (!file->flush()) return emu::fail("{} cannot be written any more", options.write);
    if (last_look || enough) break;
    if (taken == emu::kCaptureSlots) continue;
    const timespec nap{0, kNapNs};
    (void)::clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, nullptr);
  }
  return count;
}

}  // namespace tools
