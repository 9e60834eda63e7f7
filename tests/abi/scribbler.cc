// A program that breaks every rule of the shared memory it was given: it makes queue pairs, then
// writes random bytes over their rings, its completion queue and its doorbells, and random messages
// into its socket. Its hcad must serve everybody else as if nothing happened (tests/apps).
//
// usage: scribbler SEED ROUNDS
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "emu/base/prng.h"
#include "hca/abi/control.h"

namespace {

struct Area {
  std::uint8_t* data;
  std::size_t bytes;
};

// What hcad made for this process and lets it write.
std::vector<Area> shared_areas() {
  std::vector<Area> areas;
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  char line[512];
  while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long start = 0;
    unsigned long end = 0;
    char mode[5] = {};
    if (std::strstr(line, "/memfd:flitnet-") == nullptr ||
        std::sscanf(line, "%lx-%lx %4s", &start, &end, mode) != 3 || mode[1] != 'w') {
      continue;
    }
    areas.push_back({reinterpret_cast<std::uint8_t*>(start), end - start});
  }
  if (maps != nullptr) std::fclose(maps);
  return areas;
}

struct Queues {
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
};

// A queue pair that talks to itself, so that hcad reads its rings in every state.
Queues make_queues(ibv_context* context, ibv_pd* pd, const ibv_port_attr& port) {
  Queues q;
  q.cq = ibv_create_cq(context, 64, nullptr, nullptr, 0);
  if (q.cq == nullptr) return q;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = q.cq;
  init.cap = {32, 32, 4, 4, 64};
  init.qp_type = IBV_QPT_RC;
  q.qp = ibv_create_qp(pd, &init);
  if (q.qp == nullptr) return q;
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  ibv_modify_qp(q.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = IBV_MTU_1024;
  a.dest_qp_num = q.qp->qp_num;
  a.max_dest_rd_atomic = 1;
  a.ah_attr.dlid = port.lid;
  a.ah_attr.port_num = 1;
  ibv_modify_qp(q.qp, &a,
                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  a.qp_state = IBV_QPS_RTS;
  a.timeout = 14;
  a.retry_cnt = a.rnr_retry = 7;
  a.max_rd_atomic = 1;
  ibv_modify_qp(q.qp, &a,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return q;
}

void post_something(const Queues& q) {
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  ibv_post_send(q.qp, &send, &bad_send);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  ibv_post_recv(q.qp, &receive, &bad_receive);
}

void scribble(emu::Prng& prng, const std::vector<Area>& areas) {
  for (const Area& area : areas) {
    // The words at the front are indexes and flags; behind them are entries.
    const std::size_t within = prng.below(2) == 0 && area.bytes > 192 ? 192 : area.bytes;
    for (std::uint32_t n = prng.below(32); n > 0; --n) {
      const auto at = prng.below(static_cast<std::uint32_t>(within / 4)) * 4;
      const auto word = static_cast<std::uint32_t>(prng() >> prng.below(64));
      std::memcpy(area.data + at, &word, sizeof word);
    }
  }
}

// Every byte of every area once, while hcad works with it.
void sweep(emu::Prng& prng, const std::vector<Area>& areas, const std::vector<Queues>& queues) {
  for (const Area& area : areas) {
    for (std::size_t at = 0; at + 8 <= area.bytes; at += 8) {
      const std::uint64_t word = prng();
      std::memcpy(area.data + at, &word, sizeof word);
      if (at % 1024 == 0 && !queues.empty() && queues[0].qp != nullptr) post_something(queues[0]);
    }
  }
}

// A second connection of this program that says anything at all.
void babble(emu::Prng& prng, const char* path) {
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    std::uint8_t bytes[256];
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(prng());
    bytes[0] = static_cast<std::uint8_t>(prng.below(18));
    bytes[1] = bytes[2] = bytes[3] = 0;
    const std::size_t length =
        prng.below(2) == 0 ? sizeof(hca::ControlRequest) : 1 + prng.below(sizeof bytes - 1);
    (void)!::send(fd, bytes, length, MSG_NOSIGNAL);
  }
  ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  emu::Prng prng(std::strtoull(argv[1], nullptr, 10));
  const long rounds = std::atol(argv[2]);
  const char* path = std::getenv(hca::kNodeSocketVariable);
  ibv_device** devices = ibv_get_device_list(nullptr);
  if (path == nullptr || devices == nullptr || devices[0] == nullptr) return 1;
  std::printf("seed %s\n", argv[1]);
  for (long round = 0; round < rounds; ++round) {
    ibv_context* context = ibv_open_device(devices[0]);
    if (context == nullptr) return 1;
    ibv_pd* pd = ibv_alloc_pd(context);
    ibv_port_attr port{};
    ibv_query_port(context, 1, &port);
    std::vector<Queues> queues;
    for (int i = 0; i < 4; ++i) queues.push_back(make_queues(context, pd, port));
    const std::vector<Area> areas = shared_areas();
    for (int i = 0; i < 50; ++i) {
      for (const Queues& q : queues) {
        if (q.qp != nullptr) post_something(q);
      }
      scribble(prng, areas);
      babble(prng, path);
      ::usleep(prng.below(300));
    }
    if (round % 4 == 3) sweep(prng, areas, queues);
    ibv_close_device(context);  // leaves everything to hcad
  }
  std::puts("done");
  // What it scribbled over is its own library's memory too: no destructor shall look at it.
  std::fflush(stdout);
  ::_exit(0);
}
