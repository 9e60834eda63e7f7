// A thread whose polls find nothing sleeps on all CQs that it polls in turn, and on no other.
#include "hca/verbs/sleep.h"

#include <atomic>
#include <thread>

#include "tests/unit/hca/verbs/node.h"

namespace {

using hca::PolledInTurn;
using test::Node;
using test::Program;

class Turns : public testing::Test {
 protected:
  static PolledInTurn::Ring ring() {
    return std::make_shared<emu::Region>(*emu::Region::create("test-ring", 4096));
  }
  std::size_t polled(const PolledInTurn::Ring& ring) { return turns.polled(ring, rings); }

  PolledInTurn turns;
  std::array<PolledInTurn::Ring, PolledInTurn::kMost> rings;
  PolledInTurn::Ring a = ring();
  PolledInTurn::Ring b = ring();
};

TEST_F(Turns, ThoseSinceTheLastTimeAreTold) {
  EXPECT_EQ(polled(a), 1u);
  EXPECT_EQ(polled(b), 1u);  // whether it is polled again nobody knows yet
  EXPECT_EQ(polled(a), 2u);
  EXPECT_EQ(rings[0], a);
  EXPECT_EQ(rings[1], b);
  EXPECT_EQ(polled(b), 2u);
  EXPECT_EQ(rings[1], a);
}

TEST_F(Turns, OneThatIsPolledNoMoreIsForgotten) {
  polled(a);
  polled(b);
  EXPECT_EQ(polled(b), 1u);
  polled(a);
  EXPECT_EQ(polled(a), 1u);
}

TEST_F(Turns, OneThatHasGoneIsForgotten) {
  polled(a);
  polled(b);
  b.reset();
  rings = {};
  EXPECT_EQ(polled(a), 1u);
}

TEST_F(Turns, OfManyTheLastOnesAreKept) {
  std::vector<PolledInTurn::Ring> many;
  for (std::size_t i = 0; i < PolledInTurn::kMost + 4; ++i) many.push_back(ring());
  for (const auto& each : many) polled(each);
  for (const auto& each : many) EXPECT_LE(polled(each), PolledInTurn::kMost);
  EXPECT_EQ(polled(many.back()), 1u);
}

TEST(Asleep, AThreadIsWokenByEitherOfTwoCqs) {
  Node node;
  Program program;
  ibv_cq* const other = ibv_create_cq(program.context, 16, nullptr, nullptr, 0);
  ASSERT_NE(other, nullptr);
  std::atomic<bool> stop{false};
  std::atomic<unsigned> polls{0};
  std::thread thread([&] {
    ibv_wc wc;
    while (!stop) {
      for (ibv_cq* each : {program.cq, other}) {
        ibv_poll_cq(each, 1, &wc);
        ++polls;
      }
    }
  });
  const auto asleep = [](ibv_cq* cq) { return hca::to_cq(cq)->page().sleepers.load() != 0; };
  bool on_both = false;
  while (!on_both && polls < 20'000) {
    const unsigned before = polls;
    on_both = asleep(program.cq) && asleep(other) && polls == before;  // within one poll
  }
  stop = true;
  thread.join();
  EXPECT_TRUE(on_both);
  EXPECT_EQ(ibv_destroy_cq(other), 0);
}

}  // namespace
