// Programs poll the last bytes of a WRITE: when those come, all before them are there. The last
// ones lie alone in a page that cannot be touched until somebody has looked at the others.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstring>

#include "tests/unit/hca/host/pair.h"

namespace {

using hca::WcStatus;
using hca::WrOpcode;
using test::Pair;
using test::PairOptions;

constexpr std::size_t kPage = 65536;  // a multiple of every system's

// Memory for the host to map, with that page at its end.
class Watched {
 public:
  Watched() {
    void* data =
        ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return;
    bytes_ = static_cast<std::uint8_t*>(data);
    struct sigaction action {};
    action.sa_sigaction = &Watched::touched;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, &before_);
    watched = this;
  }
  ~Watched() {
    if (bytes_ == nullptr) return;
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(bytes_, 2 * kPage);
    watched = nullptr;
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  std::uint8_t* data() const { return bytes_; }
  std::uint8_t* last_page() const { return bytes_ + kPage; }

  // From now on `message` is expected, up to its `last` bytes in the last page.
  void expect(std::span<const std::uint8_t> message, std::size_t last) {
    std::memset(bytes_, 0, kPage + last);
    before_last_ = message.first(message.size() - last);
    touches_ = 0;
    whole_ = false;
    ::mprotect(last_page(), kPage, PROT_NONE);
  }
  int touches() const { return touches_; }
  bool whole() const { return whole_; }  // all before them was there

 private:
  static void touched(int, siginfo_t* info, void*) {
    const auto* at = static_cast<const std::uint8_t*>(info->si_addr);
    Watched& me = *watched;
    if (at < me.last_page() || at >= me.last_page() + kPage) {
      ::sigaction(SIGSEGV, &me.before_, nullptr);  // not ours: it comes again
      return;
    }
    ++me.touches_;
    const std::span<const std::uint8_t> expected = me.before_last_;
    me.whole_ = expected.empty() || std::memcmp(me.last_page() - expected.size(), expected.data(),
                                                expected.size()) == 0;
    ::mprotect(me.last_page(), kPage, PROT_READ | PROT_WRITE);
  }

  static inline Watched* watched = nullptr;
  std::uint8_t* bytes_ = nullptr;
  std::span<const std::uint8_t> before_last_;
  int touches_ = 0;
  bool whole_ = false;
  struct sigaction before_ {};
};

class LastBytes : public testing::TestWithParam<bool> {};  // whether packets come in trains

TEST_P(LastBytes, ComeLast) {
  PairOptions options;
  options.link.trains = GetParam() ? 64 : 0;
  Pair pair(options);
  Watched watched;
  ASSERT_NE(watched.data(), nullptr);
  const hca::MrKeys keys = pair.b.app->reg(watched.data(), 2 * kPage, test::kAll);
  const std::vector<std::uint8_t>& bytes = test::pattern();
  // What may come at once is the largest aligned word that ends there.
  for (const std::uint32_t last : {1u, 2u, 4u, 8u}) {
    for (const std::uint32_t length :
         {1u, 2u, 5u, 8u, 9u, 100u, 1000u, 2048u, 2055u, 4096u, 30000u}) {
      if (length < last) continue;
      watched.expect({bytes.data(), length}, last);
      const hca::Sge from = pair.a.sge(0, length);
      std::uint8_t* const to = watched.last_page() + last - length;
      ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_write,
                           .sges = {&from, 1},
                           .remote_addr = reinterpret_cast<std::uint64_t>(to),
                           .rkey = keys.rkey}),
                0);
      EXPECT_EQ(test::statuses(pair.run().first), std::vector{WcStatus::success});
      EXPECT_EQ(watched.touches(), 1);
      EXPECT_TRUE(watched.whole()) << length << " bytes, the last " << last;
      EXPECT_EQ(std::memcmp(to, bytes.data(), length), 0) << length;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Packets, LastBytes, testing::Bool());

}  // namespace
