// What each way to attach is measured with: an attachment and a port in two threads, a sink or an
// echo where the fabric's engine would be.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fabric/port/packets.h"
#include "fabric/port/port.h"
#include "hca/attach/attach.h"

namespace bench {

inline constexpr std::uint16_t kPacketBytes = 640;

struct RoundTrip {
  double p50_us = 0;
  double p99_us = 0;
};

// Processor time of one packet at each side, both sides in one thread: unlike packets per second
// it does not suffer from who else wants the cores.
struct Cost {
  double node_ns = 0;
  double fabric_ns = 0;
};

// One way to attach, beside a bare reference on the same path in the same run.
struct WayResult {
  std::string name;
  double packets_per_s = 0;
  RoundTrip round_trip;
  Cost cost;
  std::string reference;  // what it is compared with
  double reference_packets_per_s = 0;
  std::optional<RoundTrip> reference_round_trip;
  double asked_packets_per_s = 0;  // 0: `asked_ratio` instead
  double asked_ratio = 0;
  std::string skipped;  // why there are no figures

  double ratio() const {
    return reference_packets_per_s > 0 ? packets_per_s / reference_packets_per_s : 0;
  }
  bool met() const {
    return asked_ratio > 0 ? ratio() >= asked_ratio : packets_per_s >= asked_packets_per_s;
  }
};

struct Effort {
  std::uint64_t throughput_ns = 1'500'000'000;
  std::uint64_t round_trips = 20'000;
};

RoundTrip percentiles(std::vector<std::uint64_t> samples_ns);

// False: the node did not attach within five seconds.
bool attach(hca::Attachment& node, fabric::Port& port);
// Packets of kPacketBytes from the node into the fabric, one way.
double measure_throughput(hca::Attachment& node, fabric::Port& port, fabric::PacketMemory& memory,
                          const Effort& effort);
Cost measure_cost(hca::Attachment& node, fabric::Port& port, fabric::PacketMemory& memory,
                  const Effort& effort);
// The same packet to the fabric and back, one at a time.
RoundTrip measure_round_trip(hca::Attachment& node, fabric::Port& port,
                             fabric::PacketMemory& memory, const Effort& effort);

fabric::EdgeRules rules();

// The references.
RoundTrip core_to_core(const Effort& effort);
double bare_ring(const Effort& effort);  // descriptors through one SPSC ring
double bare_udp(const Effort& effort);   // full datagrams on loopback, GSO to GRO, no session
RoundTrip bare_udp_round_trip(const Effort& effort);
// Full datagrams from a kernel socket into `receive`, which returns how many it got.
double flood(int socket, const std::string& to, std::uint64_t duration_ns,
             const std::function<std::uint64_t()>& receive);
// Round trips of one packet's datagram from a kernel socket to something that sends it back.
std::optional<RoundTrip> echo_round_trip(int socket, const std::string& to, std::uint64_t count);
// Packets that a datagram of the session carries.
double packets_per_datagram();

// The ways. Each is run in a process of its own.
WayResult run_shm(const Effort& effort);
WayResult run_udp(const Effort& effort, bool io_uring);
WayResult run_ethdev(const Effort& effort, const std::string& driver);

}  // namespace bench
