// Shared rings and UDP on loopback.
#include <stdlib.h>

#include <filesystem>

#include "emu/clock/page.h"
#include "fabric/daemon/eal.h"
#include "fabric/port/shm.h"
#include "fabric/port/udp.h"
#include "hca/attach/shm.h"
#include "hca/attach/udp.h"
#include "tests/bench/attach/measure.h"

namespace bench {
namespace {

class RunDir {
 public:
  RunDir() {
    std::string name = std::filesystem::temp_directory_path() / "flitnet-bench-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~RunDir() { std::filesystem::remove_all(path_); }
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool measure(WayResult& result, hca::Attachment& node, fabric::Port& port,
             fabric::PacketMemory& memory, const Effort& effort) {
  if (!attach(node, port)) {
    result.skipped = "the node did not attach: " + node.reason();
    return false;
  }
  result.cost = measure_cost(node, port, memory, effort);
  result.packets_per_s = measure_throughput(node, port, memory, effort);
  result.round_trip = measure_round_trip(node, port, memory, effort);
  return true;
}

}  // namespace

WayResult run_shm(const Effort& effort) {
  WayResult result{.name = "shared rings", .reference = "bare ring", .asked_packets_per_s = 5e6};
  const RunDir dir;
  if (auto eal = fabric::start_eal({dir.path(), "", 128}); !eal) {
    result.skipped = eal.error().message;
    return result;
  }
  {
    fabric::PacketMemory memory;
    auto clock = emu::ClockWriter::open(dir.path() + "/clock.page", {}, emu::ClockMode::elastic);
    fabric::ShmPortOptions options;
    options.socket_path = dir.path() + "/fabric.sock";
    options.rules = rules();
    auto port = fabric::ShmPort::open(options, memory);
    if (!clock || !port) {
      result.skipped = "cannot open the port";
      return result;
    }
    auto node = hca::make_shm_attachment({dir.path(), "n0"});
    result.reference_packets_per_s = bare_ring(effort);
    result.reference_round_trip = core_to_core(effort);
    measure(result, *node, **port, memory, effort);
  }
  fabric::stop_eal();
  return result;
}

WayResult run_udp(const Effort& effort, bool io_uring) {
  WayResult result{.name = io_uring ? "UDP, io_uring" : "UDP, plain socket",
                   .reference = "bare UDP, GSO to GRO",
                   .asked_packets_per_s = 1e6};
  const RunDir dir;
  if (auto eal = fabric::start_eal({dir.path(), "", 128}); !eal) {
    result.skipped = eal.error().message;
    return result;
  }
  {
    fabric::PacketMemory memory;
    fabric::UdpPortOptions options;
    options.listen = "127.0.0.1:0";
    options.session.rules = rules();
    options.session.cluster_key = emu::random_key();
    auto port = fabric::UdpPort::open(options, memory);
    if (!port) {
      result.skipped = port.error().message;
      return result;
    }
    auto node = hca::make_udp_attachment({.fabric = (*port)->address().text(),
                                          .node_name = "n0",
                                          .cluster_key = options.session.cluster_key,
                                          .io_uring = io_uring});
    if (!node) {
      result.skipped = node.error().message;
      return result;
    }
    result.reference_packets_per_s = bare_udp(effort);
    result.reference_round_trip = bare_udp_round_trip(effort);
    measure(result, **node, **port, memory, effort);
  }
  fabric::stop_eal();
  return result;
}

}  // namespace bench
