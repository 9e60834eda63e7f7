#include "hca/verbs/inline_recv.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace hca {

namespace {

// The bytes once more, out of the file behind the page: a read faults without a signal. No
// cancellation point, unlike pread().
bool copied(const Context& context, const InlineRecv& message) {
  const auto offset = reinterpret_cast<const std::byte*>(message.bytes) -
                      reinterpret_cast<const std::byte*>(&context.doorbells());
  const std::size_t length = std::min(message.length, kInlineRecvBytes);
  std::uint32_t version = 0;
  do {
    version = message.version.load(std::memory_order_seq_cst);
    const long read =
        ::syscall(SYS_pread64, context.session->doorbells.fd(), message.address, length, offset);
    if (read != static_cast<long>(length)) return false;
  } while (message.version.load(std::memory_order_seq_cst) != version);
  return true;
}

// False: it was copied already.
bool taken(InlineRecv& message) {
  InlineRecvState full = InlineRecvState::full;
  while (!message.state.compare_exchange_strong(full, InlineRecvState::taken,
                                                std::memory_order_acquire)) {
    if (full != InlineRecvState::taken) return false;
    full = InlineRecvState::full;
    (void)::sched_yield();  // another thread is at it
  }
  return true;
}

void fail_queue_pair(const Context& context, std::uint32_t qp_num) {
  ControlRequest request{};
  request.op = ControlOp::modify_qp;
  request.number = qp_num;
  request.modify.attributes.state = QpState::err;
  request.modify.mask = IBV_QP_STATE;
  (void)context.link().ask(request);
}

}  // namespace

bool bring_home(Context& context) {
  InlineRecv& message = context.doorbells().inline_recv;
  const bool gone = taken(message) && !copied(context, message);
  message.state.store(InlineRecvState::free, std::memory_order_release);
  return !gone;
}

void bring_home(Context& context, Cqe& cqe) {
  cqe.wc_flags &= ~kWcInline;
  if (bring_home(context)) return;
  cqe.status = WcStatus::loc_prot_err;
  fail_queue_pair(context, cqe.qp_num);
}

void bring_region_home(Context& context, std::uint32_t lkey) {
  if (context.link().abandoned()) return;  // to a child of fork it is its parent's
  InlineRecv& message = context.doorbells().inline_recv;
  if (message.state.load(std::memory_order_acquire) == InlineRecvState::free ||
      message.lkey != lkey || !taken(message)) {
    return;
  }
  // Where the memory has gone its completion says so, when it is polled.
  const bool home = copied(context, message);
  message.state.store(home ? InlineRecvState::home : InlineRecvState::full,
                      std::memory_order_release);
}

void bring_cq_home(Context& context, std::uint32_t cq) {
  if (context.link().abandoned()) return;
  InlineRecv& message = context.doorbells().inline_recv;
  if (message.state.load(std::memory_order_acquire) == InlineRecvState::free || message.cq != cq)
    return;
  (void)bring_home(context);
}

}  // namespace hca
