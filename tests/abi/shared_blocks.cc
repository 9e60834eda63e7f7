// Blocks of memory that hcad maps (a memfd that cannot shrink), sent to another node. The sender
// writes over each as soon as it is its own again: once it is completed, or once its queue pair is
// in ERR. What arrives must be what was sent.
//
// usage: shared_blocks server PORT BLOCKS ABANDONED | shared_blocks client ADDRESS PORT ...
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emu/base/prng.h"
#include "tests/shared_memory.h"

namespace {

constexpr std::size_t kBytesMax = 256 << 10;

void must(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::exit(1);
}

std::uint8_t* shared_memory() {
  void* data = test::shared_memory("shared_blocks", kBytesMax);
  must(data != nullptr, "shared memory");
  return static_cast<std::uint8_t*>(data);
}

// Both sides, and whoever looks at packets, know the bytes of the nth block by its number: words of
// the number and their place.
std::size_t fill(std::uint64_t nth, std::uint8_t* bytes) {
  emu::Prng prng(nth);
  const std::size_t length = nth % 4 == 0 ? 1 + prng.below(4096) : kBytesMax - prng.below(200'000);
  for (std::size_t i = 0; i < length; ++i) {
    const std::uint64_t word = nth << 20 | i / 4;
    bytes[i] = static_cast<std::uint8_t>(word >> i % 4 * 8);
  }
  return length;
}

rdma_cm_id* endpoint(const char* address, const char* port) {
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_flags = address == nullptr ? RAI_PASSIVE : 0;
  rdma_addrinfo* found = nullptr;
  must(rdma_getaddrinfo(address, port, &hints, &found) == 0, "rdma_getaddrinfo");
  ibv_qp_init_attr attr{};
  attr.cap = {1, 1, 1, 1, 0};
  attr.sq_sig_all = 1;
  rdma_cm_id* id = nullptr;
  must(rdma_create_ep(&id, found, nullptr, &attr) == 0, "rdma_create_ep");
  rdma_freeaddrinfo(found);
  return id;
}

// What one connection has: memory registered with it.
struct Connection {
  Connection(rdma_cm_id* made, std::uint8_t* memory)
      : id(made), bytes(memory), mr(rdma_reg_msgs(made, memory, kBytesMax)) {
    must(mr != nullptr, "rdma_reg_msgs");
  }
  ~Connection() {
    rdma_disconnect(id);
    rdma_dereg_mr(mr);
    rdma_destroy_ep(id);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void send(std::uint64_t nth) const {
    const std::size_t length = fill(nth, bytes);
    must(rdma_post_send(id, nullptr, bytes, length, mr, 0) == 0, "rdma_post_send");
  }
  void write_over() const { std::memset(bytes, 0xee, kBytesMax); }
  void expect() const {
    must(rdma_post_recv(id, nullptr, bytes, kBytesMax, mr) == 0, "rdma_post_recv");
  }
  void check(std::uint64_t nth, const ibv_wc& wc) const {
    static std::uint8_t wanted[kBytesMax];
    const std::size_t length = fill(nth, wanted);
    if (wc.byte_len == length && std::memcmp(bytes, wanted, length) == 0) return;
    std::printf("block %llu is not what was sent\n", static_cast<unsigned long long>(nth));
    std::exit(1);
  }
  rdma_cm_id* id;
  std::uint8_t* bytes;
  ibv_mr* mr;
};

void serve(const char* port, std::uint64_t blocks, std::uint64_t abandoned) {
  rdma_cm_id* listener = endpoint(nullptr, port);
  must(rdma_listen(listener, 8) == 0, "rdma_listen");
  std::uint8_t* memory = shared_memory();
  std::uint64_t arrived = 0;
  for (std::uint64_t n = 0; n <= abandoned; ++n) {
    rdma_cm_id* id = nullptr;
    must(rdma_get_request(listener, &id) == 0, "rdma_get_request");
    Connection connection(id, memory);
    connection.expect();
    must(rdma_accept(id, nullptr) == 0, "rdma_accept");
    ibv_wc wc{};
    for (std::uint64_t i = 0; n == 0 && i < blocks; ++i) {
      must(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "receive");
      connection.check(i, wc);
      if (i + 1 < blocks) connection.expect();
    }
    // An abandoned block may arrive, or not.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    while (n != 0 && std::chrono::steady_clock::now() < end) {
      if (ibv_poll_cq(id->recv_cq, 1, &wc) == 0) continue;
      if (wc.status == IBV_WC_SUCCESS) connection.check(n, wc), ++arrived;
      break;
    }
  }
  rdma_destroy_ep(listener);
  std::printf("%llu of %llu abandoned blocks arrived, all as they were sent\n",
              static_cast<unsigned long long>(arrived), static_cast<unsigned long long>(abandoned));
}

void send(const char* address, const char* port, std::uint64_t blocks, std::uint64_t abandoned) {
  std::uint8_t* memory = shared_memory();
  emu::Prng prng(blocks);
  for (std::uint64_t n = 0; n <= abandoned; ++n) {
    Connection connection(endpoint(address, port), memory);
    must(rdma_connect(connection.id, nullptr) == 0, "rdma_connect");
    ibv_wc wc{};
    for (std::uint64_t i = 0; n == 0 && i < blocks; ++i) {
      connection.send(i);
      must(rdma_get_send_comp(connection.id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "send");
      connection.write_over();
    }
    if (n == 0) continue;
    connection.send(n);
    const auto wait = std::chrono::steady_clock::now() + std::chrono::microseconds(prng.below(100));
    while (std::chrono::steady_clock::now() < wait) {
    }
    ibv_qp_attr failed{};
    failed.qp_state = IBV_QPS_ERR;
    must(ibv_modify_qp(connection.id->qp, &failed, IBV_QP_STATE) == 0, "ibv_modify_qp");
    connection.write_over();
    ::usleep(1000);
  }
}

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "server") == 0) {
    serve(argv[2], number(argv[3]), number(argv[4]));
  } else if (argc == 6 && std::strcmp(argv[1], "client") == 0) {
    send(argv[2], argv[3], number(argv[4]), number(argv[5]));
  } else {
    std::fprintf(stderr, "usage: shared_blocks server PORT N M | client ADDRESS PORT N M\n");
    return 2;
  }
  return 0;
}
