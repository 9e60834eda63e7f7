// The bare paths that the ways to attach are compared with.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "emu/base/check.h"
#include "emu/clock/host.h"
#include "emu/ring/spsc.h"
#include "emu/wire/record.h"
#include "emu/wire/udp_socket.h"
#include "tests/bench/attach/measure.h"

namespace bench {
namespace {

constexpr std::size_t kDatagramBytes = emu::kFrameBytesDefault;
constexpr std::size_t kTrainSegments = 44;  // what fits into 64 KiB

emu::UdpSocket loopback() {
  return emu::UdpSocket(
      emu::open_udp_socket(emu::UdpAddress::resolve("127.0.0.1:0").value()).value());
}

}  // namespace

double packets_per_datagram() {
  return static_cast<double>(kDatagramBytes - emu::kFrameOverhead) /
         static_cast<double>(emu::record_bytes(sizeof(emu::TxDesc) + kPacketBytes));
}

RoundTrip core_to_core(const Effort& effort) {
  alignas(64) std::atomic<std::uint64_t> there{0};
  alignas(64) std::atomic<std::uint64_t> back{0};
  const std::uint64_t count = effort.round_trips * 4;
  std::thread peer([&] {
    for (std::uint64_t i = 1; i <= count; ++i) {
      while (there.load(std::memory_order_acquire) != i) {
      }
      back.store(i, std::memory_order_release);
    }
  });
  std::vector<std::uint64_t> samples;
  samples.reserve(count);
  for (std::uint64_t i = 1; i <= count; ++i) {
    const std::uint64_t begin = emu::host_now_ns();
    there.store(i, std::memory_order_release);
    while (back.load(std::memory_order_acquire) != i) {
    }
    samples.push_back(emu::host_now_ns() - begin);
  }
  peer.join();
  return percentiles(std::move(samples));
}

double bare_ring(const Effort& effort) {
  constexpr std::size_t kCapacity = 4096;
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  std::vector<Line> memory(emu::ring_bytes<emu::TxDesc>(kCapacity) / sizeof(Line) + 1);
  const emu::RingView<emu::TxDesc> view(memory.data(), kCapacity);
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    emu::RingProducer<emu::TxDesc> producer(view);
    const std::array<emu::TxDesc, 32> burst{};
    while (!stop.load(std::memory_order_relaxed)) producer.push(burst);
  });
  emu::RingConsumer<emu::TxDesc> consumer(view);
  std::array<emu::TxDesc, 64> got;
  std::uint64_t count = 0;
  const std::uint64_t begin = emu::host_now_ns();
  std::uint64_t now = begin;
  while (now - begin < effort.throughput_ns) {
    for (int i = 0; i < 64; ++i) count += consumer.pop(got);
    now = emu::host_now_ns();
  }
  stop = true;
  sender.join();
  return static_cast<double>(count) * 1e9 / static_cast<double>(now - begin);
}

double flood(int fd, const std::string& to, std::uint64_t duration_ns,
             const std::function<std::uint64_t()>& receive) {
  std::atomic<bool> stop{false};
  const auto address = emu::UdpAddress::resolve(to).value();
  std::thread sender([&] {
    emu::UdpSocket socket{emu::UniqueFd(::dup(fd))};
    std::vector<std::byte> bytes(kTrainSegments * kDatagramBytes);
    const emu::UdpSocket::Outgoing out{address, {bytes, kDatagramBytes}};
    while (!stop.load(std::memory_order_relaxed)) socket.send({&out, 1});
  });
  std::uint64_t count = 0;
  const std::uint64_t begin = emu::host_now_ns();
  std::uint64_t now = begin;
  while (now - begin < duration_ns) {
    count += receive();
    now = emu::host_now_ns();
  }
  stop = true;
  sender.join();
  return static_cast<double>(count) * packets_per_datagram() * 1e9 /
         static_cast<double>(now - begin);
}

double bare_udp(const Effort& effort) {
  emu::UdpSocket out = loopback();
  emu::UdpSocket in = loopback();
  return flood(out.fd(), emu::local_address(in.fd())->text(), effort.throughput_ns, [&] {
    std::uint64_t got = 0;
    in.receive([&](const emu::UdpAddress&, std::span<const std::byte>) { ++got; });
    return got;
  });
}

std::optional<RoundTrip> echo_round_trip(int fd, const std::string& to, std::uint64_t count) {
  emu::UdpSocket socket{emu::UniqueFd(::dup(fd))};
  const auto address = emu::UdpAddress::resolve(to).value();
  std::vector<std::byte> bytes(emu::kFrameOverhead +
                               emu::record_bytes(sizeof(emu::TxDesc) + kPacketBytes));
  const emu::UdpSocket::Outgoing out{address, {bytes, bytes.size()}};
  std::vector<std::uint64_t> samples;
  int lost = 0;
  while (samples.size() < count && lost < 20) {
    const std::uint64_t begin = emu::host_now_ns();
    socket.send({&out, 1});
    bool back = false;
    while (!back && emu::host_now_ns() - begin < 100'000'000) {
      socket.receive([&](const emu::UdpAddress&, std::span<const std::byte>) { back = true; });
    }
    if (back) {
      samples.push_back(emu::host_now_ns() - begin);
    } else {
      ++lost;
    }
  }
  if (samples.size() < count) return std::nullopt;
  return percentiles(std::move(samples));
}

RoundTrip bare_udp_round_trip(const Effort& effort) {
  emu::UdpSocket node = loopback();
  emu::UdpSocket echo = loopback();
  std::atomic<bool> stop{false};
  std::thread peer([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      echo.receive([&](const emu::UdpAddress& from, std::span<const std::byte> datagram) {
        const emu::UdpSocket::Outgoing out{from, {datagram, datagram.size()}};
        echo.send({&out, 1});
      });
    }
  });
  const auto result =
      echo_round_trip(node.fd(), emu::local_address(echo.fd())->text(), effort.round_trips);
  stop = true;
  peer.join();
  return result.value_or(RoundTrip{});
}

}  // namespace bench
