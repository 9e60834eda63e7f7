// Programs and hcads at their limit of descriptors: the call that needs one fails with EMFILE and
// leaves nothing behind, the device and everybody else live on.
#include <poll.h>

#include <array>
#include <fstream>

#include "hca/verbs/link.h"
#include "hca/verbs/objects.h"
#include "tests/unit/hca/verbs/forked_node.h"

namespace {

using test::ForkedNode;
using test::Program;
using test::Scarce;

std::size_t descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += static_cast<std::size_t>(!entry.path().empty());
  }
  return count;
}

std::size_t mapped_cqs() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  std::size_t count = 0;
  while (std::getline(maps, line)) {
    count += static_cast<std::size_t>(line.find("flitnet-cq") != line.npos);
  }
  return count;
}

struct Scene {
  Scene() { std::tie(from, to) = program.make_pair(); }
  // One message, as proof that all is well.
  void pass(const Program& by, ibv_qp* a, ibv_qp* b) {
    ASSERT_EQ(by.receive(b, 1), 0);
    ASSERT_EQ(by.send(a, 2), 0);
    const auto done = by.poll(2);
    ASSERT_EQ(done.size(), 2u);
    for (const ibv_wc& wc : done) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  void pass() { pass(program, from, to); }

  ForkedNode node;
  Program program;
  ibv_qp* from;
  ibv_qp* to;
};

ibv_srq* make_srq(const Program& program) {
  ibv_srq_init_attr init{};
  init.attr = {4, 1, 0};
  return ibv_create_srq(program.pd, &init);
}

// Every kind of object whose memory comes from hcad.
void expect_refused(Program& program) {
  errno = 0;
  EXPECT_EQ(ibv_create_cq(program.context, 4, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EMFILE);
  errno = 0;
  EXPECT_EQ(program.make_qp(), nullptr);
  EXPECT_EQ(errno, EMFILE);
  errno = 0;
  EXPECT_EQ(make_srq(program), nullptr);
  EXPECT_EQ(errno, EMFILE);
  errno = 0;
  EXPECT_EQ(ibv_create_comp_channel(program.context), nullptr);
  EXPECT_EQ(errno, EMFILE);
  EXPECT_EQ(ibv_resize_cq(program.cq, 128), EMFILE);
  EXPECT_EQ(program.cq->cqe, 64);
}

TEST(Descriptors, ObjectsKeepNone) {
  Scene s;
  const std::size_t before = descriptors();
  std::vector<ibv_cq*> cqs;
  std::vector<ibv_srq*> srqs;
  for (int i = 0; i < 20; ++i) {
    cqs.push_back(ibv_create_cq(s.program.context, 4, nullptr, nullptr, 0));
    srqs.push_back(make_srq(s.program));
    ASSERT_NE(s.program.make_qp(), nullptr);
  }
  EXPECT_EQ(descriptors(), before);
  for (ibv_cq* cq : cqs) EXPECT_EQ(ibv_destroy_cq(cq), 0);
  for (ibv_srq* srq : srqs) EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST(Descriptors, AnOutgrownRingGoes) {
  Scene s;
  for (int i = 0; i < 10; ++i) ASSERT_EQ(ibv_resize_cq(s.program.cq, i % 2 == 0 ? 128 : 64), 0);
  EXPECT_EQ(mapped_cqs(), 1u);
  s.pass();
}

// The domain is free of what failed, or it could not go: hcad counts its users.
TEST(Descriptors, LostInTheProgram) {
  Scene s;
  ibv_pd* const own = s.program.pd;
  ibv_pd* const other = ibv_alloc_pd(s.program.context);
  s.program.pd = other;
  {
    const Scarce scarce(0);
    expect_refused(s.program);
    s.pass();
  }
  s.program.pd = own;
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  EXPECT_EQ(ibv_resize_cq(s.program.cq, 128), 0);
  ASSERT_NE(s.program.make_qp(), nullptr);
  s.pass();
}

// A CQ that was refused is not left in hcad: more of them than it has come to nothing.
TEST(Descriptors, RefusedQueuesAreGivenBack) {
  Scene s;
  {
    const Scarce scarce(0);
    for (std::uint32_t i = 0; i < test::Node::kCqsMax + 10; ++i) {
      ASSERT_EQ(ibv_create_cq(s.program.context, 1, nullptr, nullptr, 0), nullptr);
      ASSERT_EQ(errno, EMFILE);
    }
  }
  ibv_cq* cq = ibv_create_cq(s.program.context, 1, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST(Descriptors, TheDeviceCannotBeOpened) {
  Scene s;
  for (const std::size_t left : {0u, 1u, 3u, 4u, 5u}) {
    const Scarce scarce(left);
    errno = 0;
    EXPECT_EQ(ibv_open_device(s.program.context->device), nullptr);
    EXPECT_EQ(errno, EMFILE) << left;
  }
  s.pass();
}

// What waits in a CQ that is armed is told of at once, by hcad if need be.
TEST(Descriptors, AnArmedQueueFires) {
  Scene s;
  ASSERT_EQ(s.program.receive(s.to, 1), 0);
  ASSERT_EQ(s.program.send(s.from, 2), 0);
  while (hca::to_cq(s.program.cq)->page().tail.load() != 2) ::sched_yield();
  const Scarce scarce(0);
  ASSERT_EQ(ibv_req_notify_cq(s.program.cq, 0), 0);
  pollfd wanted{s.program.channel->fd, POLLIN, 0};
  ASSERT_EQ(::poll(&wanted, 1, 0), 1);
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  EXPECT_EQ(ibv_get_cq_event(s.program.channel, &cq, &user), 0);
  EXPECT_EQ(cq, s.program.cq);
  ibv_ack_cq_events(cq, 1);
}

TEST(Descriptors, LostInHcad) {
  Scene s;
  Program neighbour;
  ibv_qp* const a = neighbour.make_qp();
  ibv_qp* const b = neighbour.make_qp();
  Program::connect(a, b);
  Program::connect(b, a);
  s.node.leave(0);
  expect_refused(s.program);
  EXPECT_EQ(ibv_open_device(s.program.context->device), nullptr);
  EXPECT_EQ(errno, EMFILE);
  s.pass();
  s.pass(neighbour, a, b);
  s.node.leave(ForkedNode::kPlenty);
  EXPECT_EQ(ibv_resize_cq(s.program.cq, 128), 0);
  ASSERT_NE(s.program.make_qp(), nullptr);
  ibv_context* const again = ibv_open_device(s.program.context->device);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(ibv_close_device(again), 0);
  s.pass();
}

// hcad takes the events of a destroyed queue back all the same.
TEST(Descriptors, EventsGoWithTheirObjects) {
  Scene s;
  ASSERT_EQ(ibv_req_notify_cq(s.program.cq, 0), 0);
  s.pass();
  s.node.leave(0);
  for (ibv_qp* qp : s.program.qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
  s.program.qps.clear();
  EXPECT_EQ(ibv_destroy_cq(s.program.cq), 0);
  std::array<pollfd, 2> wanted{
      {{s.program.channel->fd, POLLIN, 0}, {s.program.context->async_fd, POLLIN, 0}}};
  EXPECT_EQ(::poll(wanted.data(), wanted.size(), 0), 0);
  s.node.leave(ForkedNode::kPlenty);
  s.program.cq = ibv_create_cq(s.program.context, 64, nullptr, s.program.channel, 0);
  ASSERT_NE(s.program.cq, nullptr);
}

ibv_xrcd* open_xrcd(const Program& program, int fd) {
  ibv_xrcd_init_attr init{};
  init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  init.fd = fd;
  init.oflags = O_CREAT;
  return ibv_open_xrcd(program.context, &init);
}

// The mistake of one call is not the end of the device.
TEST(Descriptors, ADomainOfXrcByNone) {
  Scene s;
  const int closed = ::dup(0);
  ::close(closed);
  for (const int fd : {closed, -2}) {
    errno = 0;
    EXPECT_EQ(open_xrcd(s.program, fd), nullptr) << fd;
    EXPECT_EQ(errno, EBADF) << fd;
    s.pass();
  }
  ibv_xrcd* const of_no_file = open_xrcd(s.program, -1);
  ASSERT_NE(of_no_file, nullptr);
  EXPECT_EQ(ibv_close_xrcd(of_no_file), 0);
}

// Nor is a connection that is lost the mistake of whoever asks by it, though its errno is the same.
TEST(Descriptors, AConnectionThatIsNotOpen) {
  const ForkedNode node;
  auto link = hca::Link::open(std::getenv(hca::kNodeSocketVariable));
  ASSERT_NE(link, nullptr);
  link->take_socket().reset();
  hca::ControlRequest request{};
  request.op = hca::ControlOp::open_xrcd;
  hca::Answered answered;
  EXPECT_EQ(link->ask(request, answered, 0), EIO);
  EXPECT_TRUE(link->dead());
}

}  // namespace
