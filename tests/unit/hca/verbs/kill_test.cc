// hcad is killed between any two of its stores into the rings: every work request still completes
// exactly once, in order, and what completed with success did.
#include <map>

#include "tests/unit/hca/verbs/dying_node.h"

namespace {

#if defined(__x86_64__)

using test::DyingNode;
using test::Program;

constexpr std::uint64_t kMessages = 4;
constexpr std::uint64_t kSends = 100;  // wr_ids of sends follow
constexpr int kStoresMax = 400;        // the scene has some 60

struct Queue {
  std::vector<std::uint64_t> ids;
  std::size_t successes = 0;
  bool flushing = false;
};

void add(Queue& queue, const ibv_wc& wc, const std::string& where) {
  ASSERT_TRUE(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR) << where;
  if (wc.status == IBV_WC_SUCCESS) {
    EXPECT_FALSE(queue.flushing) << where << ": success after a flush";
    ++queue.successes;
  }
  queue.flushing |= wc.status != IBV_WC_SUCCESS;
  queue.ids.push_back(wc.wr_id);
}

enum class Polls : bool { while_it_lives, afterwards };

// False: the scene ended before the node came to that store.
bool killed_at(int store, Polls polls) {
  const std::string where = "store " + std::to_string(store);
  DyingNode node;
  Program program;
  ibv_qp* from = program.make_qp();
  ibv_qp* to = program.make_qp();
  Program::connect(from, to);
  Program::connect(to, from);
  for (std::uint64_t i = 0; i < kMessages; ++i) EXPECT_EQ(program.receive(to, i), 0);
  node.die_at(store);
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    const unsigned signaled = i == 1 ? 0 : IBV_SEND_SIGNALED;
    EXPECT_EQ(program.send(from, kSends + i, 8, signaled), 0) << where;
  }
  // Long enough for all of it where nobody polls; the scene takes a few hundred microseconds.
  for (int i = 0; polls == Polls::afterwards && i < 100 && !node.died(); ++i) ::usleep(1000);
  std::map<bool, Queue> queues;  // receives?
  const std::size_t all = 2 * kMessages - 1;
  for (std::size_t i = 0; i < all; ++i) {
    for (const ibv_wc& wc : program.poll(1)) {
      add(queues[(wc.opcode & IBV_WC_RECV) != 0], wc, where);
    }
  }
  const bool reached = node.died();
  node.kill();  // then nothing more is to come but the unsignaled one, flushed, and -EIO
  for (const ibv_wc& wc : program.poll(2)) {
    add(queues[(wc.opcode & IBV_WC_RECV) != 0], wc, where + " at the end");
  }
  EXPECT_EQ(queues[true].ids, (std::vector<std::uint64_t>{0, 1, 2, 3})) << where;
  std::vector<std::uint64_t> sends{kSends, kSends + 2, kSends + 3};
  if (queues[false].ids.size() > 3) sends.insert(sends.begin() + 1, kSends + 1);  // was flushed
  EXPECT_EQ(queues[false].ids, sends) << where;
  EXPECT_GE(queues[true].successes + 1, queues[false].successes) << where;
  return reached;
}

// The last stores of the scene may come after the program has all that it waits for.
void kill_everywhere(Polls polls) {
  int reached = 0;
  int not_reached = 0;
  for (int store = 0; store < kStoresMax && not_reached < 3; ++store) {
    killed_at(store, polls) ? ++reached : ++not_reached;
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_GT(reached, 20) << "the scene writes more often than that";
  EXPECT_EQ(not_reached, 3);
}

TEST(Kill, AtEveryStoreWhileTheProgramPolls) { kill_everywhere(Polls::while_it_lives); }
TEST(Kill, AtEveryStoreBeforeTheProgramPolls) { kill_everywhere(Polls::afterwards); }

#else
TEST(Kill, AtEveryStore) { GTEST_SKIP() << "needs the trap flag of x86"; }
#endif

}  // namespace
