// A verbs program for tests/apps: memory of every kind. It prints "good" and ends with 0, or says
// what is wrong and ends with 1; 77: the machine has no such memory.
//
// usage: memory_probe big | unaligned | huge | read_only | file | truncated | in_flight | slow
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "tests/abi/probe.h"

namespace {

using namespace probe;

constexpr std::size_t kGiB = std::size_t{1} << 30;
constexpr int kSkipped = 77;

std::uint8_t* map(std::size_t length, int protection, int flags, int fd = -1) {
  void* at = ::mmap(nullptr, length, protection, flags, fd, 0);
  if (at == MAP_FAILED) fail("mmap");
  return static_cast<std::uint8_t*>(at);
}

ibv_mr* enter(const Probe& p, void* at, std::size_t length, int access = Probe::kAccess) {
  ibv_mr* mr = ibv_reg_mr(p.pd, at, length, access);
  if (mr == nullptr) fail("ibv_reg_mr");
  return mr;
}

struct File {
  char path[32] = "/tmp/flitnet-memory-XXXXXX";
  int fd = ::mkstemp(path);
  explicit File(std::size_t length) {
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(length)) != 0) fail("file");
    ::unlink(path);
  }
};

void post(ibv_qp* qp, ibv_wr_opcode opcode, std::vector<ibv_sge> list, const ibv_mr* to,
          std::size_t at) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = list.data();
  wr.num_sge = static_cast<int>(list.size());
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(to->addr) + at;
  wr.wr.rdma.rkey = to->rkey;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(qp, &wr, &bad)) fail("ibv_post_send", error);
}

ibv_sge piece(const ibv_mr* mr, std::size_t at, std::size_t length) {
  return {reinterpret_cast<std::uint64_t>(mr->addr) + at, static_cast<std::uint32_t>(length),
          mr->lkey};
}

void expect_bytes(bool same) {
  if (!same) fail("bytes", 0);
}

// A message of 1 GiB between regions of a little more, neither at the beginning of a page.
void big() {
  Joined p;
  constexpr std::size_t kOff = 3;
  std::uint8_t* from =
      map(kGiB + kOff, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  std::uint8_t* to = map(kGiB + kOff, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  const std::size_t marks[] = {0, 4095, kGiB / 3, kGiB / 2 + 1, kGiB - 1};
  for (const std::size_t mark : marks)
    from[kOff + mark] = static_cast<std::uint8_t>(mark % 251 + 1);
  const ibv_mr* source = enter(p, from + kOff, kGiB);
  const ibv_mr* sink = enter(p, to + kOff, kGiB);
  to[kOff - 1] = 77;
  post(p.from, IBV_WR_RDMA_WRITE, {piece(source, 0, kGiB)}, sink, 0);
  p.expect(IBV_WC_SUCCESS);
  for (const std::size_t mark : marks) {
    expect_bytes(to[kOff + mark] == static_cast<std::uint8_t>(mark % 251 + 1));
  }
  expect_bytes(to[kOff - 1] == 77);
}

// Lists of odd addresses and odd lengths.
void unaligned() {
  Joined p;
  for (std::size_t i = 0; i < 30'000; ++i) p.bytes[i] = static_cast<std::uint8_t>(i * 7 % 255);
  for (const std::size_t off : {1u, 3u, 4093u}) {
    std::memset(&p.bytes[32'000], 0, 30'000);
    post(p.from, IBV_WR_RDMA_WRITE, {piece(p.mr, off, 1), piece(p.mr, off + 1, 10'007)}, p.mr,
         32'000 + off);
    p.expect(IBV_WC_SUCCESS);
    expect_bytes(std::memcmp(&p.bytes[32'000 + off], &p.bytes[off], 10'008) == 0);
    expect_bytes(p.bytes[32'000 + off - 1] == 0 && p.bytes[32'000 + off + 10'008] == 0);
  }
}

void huge() {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  void* at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (at == MAP_FAILED) {
    std::printf("no huge pages are reserved\n");
    std::exit(kSkipped);
  }
  Joined p;
  auto* bytes = static_cast<std::uint8_t*>(at);
  const ibv_mr* mr = enter(p, at, kBytes, Probe::kAccess | IBV_ACCESS_HUGETLB);
  bytes[kBytes / 2 - 1] = 9;
  post(p.from, IBV_WR_RDMA_WRITE, {piece(mr, 0, kBytes / 2)}, mr, kBytes / 2);
  p.expect(IBV_WC_SUCCESS);
  expect_bytes(bytes[kBytes - 1] == 9);
}

// What may only be read can be sent; nobody may be allowed to write it.
void read_only() {
  Joined p;
  const File file(8192);
  if (::pwrite(file.fd, "read only", 10, 4000) != 10) fail("pwrite");
  std::uint8_t* at = map(8192, PROT_READ, MAP_SHARED, file.fd);
  if (ibv_reg_mr(p.pd, at, 8192, IBV_ACCESS_LOCAL_WRITE) != nullptr || errno != EFAULT) {
    fail("registered for writing");
  }
  const ibv_mr* mr = enter(p, at, 8192, IBV_ACCESS_REMOTE_READ);
  post(p.from, IBV_WR_RDMA_WRITE, {piece(mr, 4000, 10)}, p.mr, 100);
  p.expect(IBV_WC_SUCCESS);
  post(p.from, IBV_WR_RDMA_READ, {piece(p.mr, 200, 10)}, mr, 4000);
  p.expect(IBV_WC_SUCCESS);
  expect_bytes(std::memcmp(&p.bytes[100], "read only", 10) == 0);
  expect_bytes(std::memcmp(&p.bytes[200], "read only", 10) == 0);
  post(p.from, IBV_WR_RDMA_WRITE, {piece(p.mr, 0, 10)}, mr, 0);
  p.expect(IBV_WC_REM_ACCESS_ERR);
}

// What arrives in a shared mapping is in the file.
void file() {
  Joined p;
  const File file(100'000);
  const ibv_mr* mr = enter(p, map(100'000, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd), 100'000);
  std::memcpy(&p.bytes[0], "to the file", 12);
  post(p.from, IBV_WR_RDMA_WRITE, {piece(p.mr, 0, 50'000)}, mr, 40'001);
  p.expect(IBV_WC_SUCCESS);
  char found[12] = {};
  if (::pread(file.fd, found, sizeof found, 40'001) != sizeof found) fail("pread");
  expect_bytes(std::memcmp(found, "to the file", 12) == 0);
}

// A file that shrinks under its region: the access fails, and nothing else does.
void truncated() {
  Joined p;
  const File file(100'000);
  const ibv_mr* mr = enter(p, map(100'000, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd), 100'000);
  if (::ftruncate(file.fd, 10) != 0) fail("ftruncate");
  post(p.from, IBV_WR_RDMA_WRITE, {piece(p.mr, 0, 10'000)}, mr, 50'000);
  p.expect(IBV_WC_REM_OP_ERR);
  Joined again;
  post(again.from, IBV_WR_RDMA_WRITE, {piece(again.mr, 0, 10)}, again.mr, 100);
  again.expect(IBV_WC_SUCCESS);
}

// Regions end while messages from them and into them are on their way.
void in_flight() {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  for (const bool sink : {false, true}) {
    Joined p;
    std::uint8_t* at = map(2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    ibv_mr* from = enter(p, at, kBytes);
    ibv_mr* to = enter(p, at + kBytes, kBytes);
    post(p.from, IBV_WR_RDMA_WRITE, {piece(from, 0, kBytes)}, to, 0);
    if (const int error = ibv_dereg_mr(sink ? to : from)) fail("ibv_dereg_mr", error);
    p.expect(sink ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR);
    ::munmap(at, 2 * kBytes);
  }
}

// Pages that do not come: whoever reads them waits for us, who have no page to give (userfaultfd).
void slow() {
  constexpr std::size_t kBytes = 4096;
  Joined p;
  std::uint8_t* at = map(kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  const ibv_mr* mr = enter(p, at, kBytes);
  if (::madvise(at, kBytes, MADV_DONTNEED) != 0) fail("madvise");  // whoever touched them so far
  const int fd = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC));
  uffdio_api api{};
  api.api = UFFD_API;
  uffdio_register range{};
  range.range = {reinterpret_cast<std::uint64_t>(at), kBytes};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (fd < 0 || ::ioctl(fd, UFFDIO_API, &api) != 0 || ::ioctl(fd, UFFDIO_REGISTER, &range) != 0) {
    std::printf("no userfaultfd for this user\n");
    std::exit(kSkipped);
  }
  post(p.from, IBV_WR_RDMA_WRITE, {piece(mr, 0, 512)}, p.mr, 0);
  p.expect(IBV_WC_SUCCESS);  // which never comes
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  const struct {
    const char* name;
    void (*run)();
  } kinds[] = {
      {"big", big},   {"unaligned", unaligned}, {"huge", huge},           {"read_only", read_only},
      {"file", file}, {"truncated", truncated}, {"in_flight", in_flight}, {"slow", slow}};
  for (const auto& kind : kinds) {
    if (what != kind.name) continue;
    kind.run();
    std::printf("good\n");
    return 0;
  }
  std::fprintf(stderr,
               "usage: memory_probe big | unaligned | huge | read_only | file | truncated | "
               "in_flight | slow\n");
  return 2;
}
