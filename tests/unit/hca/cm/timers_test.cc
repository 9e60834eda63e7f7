// Ids that wait for a time: the manager keeps those, and no others, in the order of their times, so
// that a turn costs what is due in it. Against a plain model under random events, and as programs
// and peers see it.
#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "emu/base/prng.h"
#include "hca/cm/state.h"
#include "tests/unit/hca/cm/pair.h"

namespace {

using namespace cm_test;

struct NoOut : hca::CmOut {
  void send(emu::NodeId, const hca::Mad&) override {}
  void events_wait(hca::CmFileId, bool) override {}
};

class CmTimers : public testing::TestWithParam<std::uint64_t> {
 protected:
  static constexpr hca::CmFileId kFile = 1;
  static constexpr std::uint32_t kIds = 64;

  CmTimers() { s.files[kFile].owner = kProgram; }

  // One more id, of which a timer says that late packets are gone.
  std::uint32_t make() {
    hca::Id* const id = hca::new_id(s, kFile);
    id->uid = 1;
    return id->number;
  }
  void wait_for(std::uint32_t number, emu::EmuNs at) {
    hca::Id& id = s.ids.at(number);
    id.state = hca::IdState::timewait;
    hca::wait_until(s, id, at);
    if (at == emu::kNever) {
      model.erase(number);
    } else {
      model[number] = at;
    }
  }
  // Which ids have been told of, in order.
  std::vector<std::uint32_t> told() {
    std::vector<std::uint32_t> numbers;
    for (const hca::WaitingEvent& event : s.files[kFile].events) numbers.push_back(event.id);
    s.files[kFile].events.clear();
    return numbers;
  }
  std::vector<std::uint32_t> take_due() {
    std::set<std::pair<emu::EmuNs, std::uint32_t>> due;
    for (const auto& [number, at] : model) {
      if (at <= s.now_ns) due.emplace(at, number);
    }
    std::vector<std::uint32_t> numbers;
    for (const auto& [at, number] : due) {
      numbers.push_back(number);
      model.erase(number);
    }
    return numbers;
  }

  NoOut out;
  hca::CmState s{{}, {0, {kFirst, kFirst + 1}}, out};
  std::map<std::uint32_t, emu::EmuNs> model;
};

TEST_P(CmTimers, TheSameAsAPlainModel) {
  SCOPED_TRACE(testing::Message() << "seed " << GetParam());
  emu::Prng prng(GetParam());
  std::vector<std::uint32_t> ids;
  for (int step = 0; step < 20'000; ++step) {
    const std::uint32_t what = prng.below(8);
    const std::uint32_t one = prng.below(kIds);
    if (ids.size() < kIds) {
      ids.push_back(make());
    } else if (what == 0) {
      s.now_ns += prng.below(100);
      hca::fire_timers(s);
      ASSERT_EQ(told(), take_due()) << step;
    } else if (what == 1) {
      model.erase(ids[one]);
      hca::destroy_id(s, ids[one]);
      ids[one] = make();
    } else {
      // Some times are alike, some are over already, and some wait no longer.
      const bool no_longer = what == 2;
      wait_for(ids[one], no_longer ? emu::kNever : s.now_ns - 20 + 10 * prng.below(40));
    }
    ASSERT_EQ(s.timers.size(), model.size()) << step;
    for (const auto& [at, number] : s.timers) ASSERT_EQ(model.at(number), at) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CmTimers, testing::Range<std::uint64_t>(1, 9));

class CmTurns : public CmTest {};

// What became due in one turn is said as it became due, whatever the ids' numbers.
TEST_F(CmTurns, WhatIsDueFirstIsSaidFirst) {
  constexpr std::uint32_t kMany = 40;
  std::vector<std::uint32_t> clients;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    clients.push_back(b.create(RDMA_PS_TCP, 20 + i));
    ASSERT_EQ(b.resolve(clients[i], kFirst, 7471), 0);
  }
  std::vector<std::uint32_t> asked;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    asked.push_back(clients[i * 7 % kMany]);
    ++b.now;
    ASSERT_EQ(b.connect(asked.back()), 0);
  }
  network.flying.clear();
  b.now += 5'000'000'000;
  b.cm.advance(b.now);
  std::vector<std::uint32_t> said;
  for (const Flying& one : network.flying) said.push_back(hca::parse(one.mad)->local_id ^ kLifeOfB);
  EXPECT_EQ(said, asked);
}

// An id that has moved ends with the file that it is on, and with no other.
TEST_F(CmTurns, AFileTakesItsOwnIdsWithIt) {
  const std::uint32_t stays = a.create(RDMA_PS_TCP, 10);
  const std::uint32_t moves = a.create(RDMA_PS_TCP, 11);
  const std::uint32_t gone = a.create(RDMA_PS_TCP, 12);
  ASSERT_EQ(a.destroy(gone), 0);
  const hca::CmFileId old = a.file;
  a.file = a.cm.open(kProgram);
  ASSERT_EQ(a.migrate(moves, old), 0);
  a.cm.close(old);
  EXPECT_EQ(a.cm.ids(), 1u);
  EXPECT_EQ(a.destroy(stays), ENOENT);
  EXPECT_EQ(a.bind(moves, 0, 7471), 0);
  a.cm.close(a.file);
  EXPECT_EQ(a.cm.ids(), 0u);
  a.cm.close(a.file);  // once is enough
}

// So does a request that waits, when its listener has moved.
TEST_F(CmTurns, ARequestGoesWithTheFileOfItsListener) {
  const Joined j = asked();
  carry();
  const hca::CmFileId old = a.file;
  a.file = a.cm.open(kProgram);
  ASSERT_EQ(a.migrate(j.listener, old), 0);
  a.cm.close(old);
  EXPECT_EQ(a.cm.ids(), 2u);
  a.cm.close(a.file);
  EXPECT_EQ(a.cm.ids(), 0u);
  carry();
  EXPECT_EQ(b.event().event, kRejected);
}

}  // namespace
