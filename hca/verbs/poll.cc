// ibv_poll_cq: completions out of the shared ring. A thread that finds nothing again and again
// sleeps a little on the ring's tail (sleep.h): programs poll in a loop, and on a loaded machine
// the loop would take the time that hcad needs (VERBS.md section 4, pitfall 2).
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "emu/clock/host.h"
#include "emu/ring/fd.h"
#include "emu/ring/patience.h"
#include "hca/verbs/aside.h"
#include "hca/verbs/inline_recv.h"
#include "hca/verbs/not_cancelled.h"
#include "hca/verbs/objects.h"
#include "hca/verbs/polling.h"
#include "hca/verbs/sleep.h"

namespace hca {

namespace {

constexpr unsigned kEmptyPollsMax = 16;  // then look whether hcad lives, and sleep
constexpr unsigned kSleepsPerLook = 64;  // at hcad, whether it lives: every 6 ms or so

thread_local unsigned empty_polls = 0;  // of this thread, over all its CQs, since it last got one
thread_local unsigned sleeps = 0;       // the same
thread_local emu::Patience patience;

thread_local Beside beside;
thread_local Awakening awakening;

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// -1: several processes work for this one's programs.
int cpu_of_worker(const NodePage& node) {
  return node.works_on.load(std::memory_order_relaxed) - 1;
}

// On two cores a SEND of 64 bytes took 10.5 us instead of 7.5 for as long as the kernel left this
// thread on the CPU of the process that works for it.
void leave_its_core(const NodePage& node, std::uint64_t host_ns) {
  const int theirs = cpu_of_worker(node);
  if (!beside.should_leave(::sched_getcpu(), theirs, host_ns)) return;
  if (step_aside(theirs) < 0) beside.stayed(host_ns);
}

bool works_elsewhere(const NodePage& node) {
  const int theirs = cpu_of_worker(node);
  return theirs >= 0 && theirs != ::sched_getcpu();
}

void copy_out(const Cqe& from, ibv_wc& to) {
  to.wr_id = from.wr_id;
  to.status = static_cast<ibv_wc_status>(from.status);
  to.opcode = static_cast<ibv_wc_opcode>(from.opcode);
  to.vendor_err = from.vendor_err;
  to.byte_len = from.byte_len;
  to.imm_data = from.imm;
  to.qp_num = from.qp_num;
  to.src_qp = from.src_qp;
  to.wc_flags = from.wc_flags;
  to.pkey_index = from.pkey_index;
  to.slid = from.slid;
  to.sl = from.sl;
  to.dlid_path_bits = from.dlid_path_bits;
}

int take(Cq& cq, int count, ibv_wc* completions) {
  const std::lock_guard lock(cq.lock);
  CqPage& page = cq.page();
  const bool dead = to_context(cq.context)->dead();
  if (dead) note_death(*to_context(cq.context));  // then the tail below is the last one
  // Acquire: the CQEs below the tail are written. Pairs with the tail store in hca/host.
  const std::uint32_t tail = page.tail.load(std::memory_order_acquire);
  int taken = 0;
  while (taken < count && cq.consumed != tail) {
    Cqe cqe = cq.slot(cq.consumed++);
    if (is_inline(cqe)) bring_home(*to_context(cq.context), cqe);
    // The CQ's room comes first: what is posted into the queue's room completes into it.
    page.head.store(cq.consumed, std::memory_order_release);
    free_slots(*to_context(cq.context), cqe);
    copy_out(cqe, completions[taken++]);
  }
  Cqe cqe;
  while (dead && taken < count && next_flushed(cq, cqe)) copy_out(cqe, completions[taken++]);
  return taken;
}

// Fires the completion channel ourselves. The pipe's write end is hcad's alone, so that its death
// is seen at ours; a pipe can be opened again from its other end. Where there is no descriptor left
// for that, hcad does it, and where the pipe is full, once it has room.
void fire(const Cq& cq) {
  const NotCancelled to_its_end;
  const auto& channel = *static_cast<const Channel*>(cq.channel);
  const emu::UniqueFd write_end = emu::reopen(channel.read_end.get(), O_WRONLY | O_NONBLOCK);
  const ChannelRecord record{cq.number, 0};
  if (write_end && ::write(write_end.get(), &record, sizeof record) == sizeof record) return;
  ControlRequest request{};
  request.op = ControlOp::fire_cq;
  request.number = cq.number;
  (void)to_context(cq.context)->link().ask(request);
}

}  // namespace

bool is_receive(const Cqe& cqe) {
  return (static_cast<std::uint8_t>(cqe.opcode) & static_cast<std::uint8_t>(WcOpcode::recv)) != 0;
}

void free_slots(Context& context, const Cqe& cqe) {
  const QpEntry& entry = context.qp_entry(cqe.qp_num);
  if (entry.number.load(std::memory_order_acquire) != cqe.qp_num) return;
  Qp& qp = *entry.qp.load(std::memory_order_relaxed);
  // Release: pairs with who posts. hcad had read the slots before it wrote the completion.
  (is_receive(cqe) ? qp.rq_polled : qp.sq_polled).store(cqe.done, std::memory_order_release);
}

bool after_empty_poll(Cq& cq) {
  const bool tired = ++empty_polls >= kEmptyPollsMax;
  if (tired && to_context(cq.context)->dead()) return true;  // what is flushed is there at once
  const std::uint64_t host_ns = emu::host_now_ns();
  if (cq.armed_anew.load(std::memory_order_relaxed)) {  // usually it sleeps now, on the channel
    cq.armed_anew.store(false, std::memory_order_relaxed);
    if (awakening.goes_on_sleeping(host_ns)) return false;
  }
  // At once: where cores are few, who makes the completion stands in line for this one.
  if (patience.look_again(host_ns)) {
    const NodePage& node = to_context(cq.context)->node();
    leave_its_core(node, host_ns);
    Exchange& mine = exchange();
    if (mine.keeps_core(host_ns) && works_elsewhere(node)) return true;
    (void)::sched_yield();
    mine.gave_core(emu::host_now_ns());
    return true;
  }
  if (!tired) {
    pause_cpu();
    return false;
  }
  if (sleeps++ % kSleepsPerLook == 0) to_context(cq.context)->link().look_dead();
  if (!to_context(cq.context)->dead()) sleep_on(cq);
  return true;
}

void after_full_poll(bool received) {
  Exchange& mine = exchange();
  const bool waited = empty_polls != 0 || (received && mine.waits());
  const std::uint64_t host_ns = waited ? emu::host_now_ns() : 0;  // a stream needs no clock
  if (empty_polls != 0) patience.found(host_ns);
  if (received) mine.received(host_ns);
  empty_polls = 0;
  sleeps = 0;
}

int poll_cq(ibv_cq* base_cq, int count, ibv_wc* completions) {
  if (base_cq == nullptr || count < 0 || (completions == nullptr && count > 0)) return -EINVAL;
  Cq& cq = *to_cq(base_cq);
  if (to_context(cq.context)->link().abandoned()) return -EIO;
  int taken = take(cq, count, completions);
  if (taken == 0 && count > 0) {
    if (after_empty_poll(cq)) taken = take(cq, count, completions);
  }
  if (taken > 0) {
    after_full_poll((completions[taken - 1].opcode & IBV_WC_RECV) != 0);
    return taken;
  }
  // All was flushed and nothing more will ever come: say so instead of letting the program poll for
  // ever.
  return to_context(cq.context)->dead() ? -EIO : 0;
}

int req_notify_cq(ibv_cq* base_cq, int solicited_only) {
  if (base_cq == nullptr) return EINVAL;
  Cq& cq = *to_cq(base_cq);
  if (to_context(cq.context)->link().abandoned()) return EIO;
  const auto lock = lock_unless_polled_here(cq);
  CqPage& page = cq.page();
  cq.armed_anew.store(true, std::memory_order_relaxed);
  // IBA 11.4.2.2: who waits for any completion goes on to, whatever is asked for beside it.
  if (solicited_only == 0) {
    page.armed.store(kCqArmedNext, std::memory_order_seq_cst);
  } else {
    std::uint32_t disarmed = kCqDisarmed;
    page.armed.compare_exchange_strong(disarmed, kCqArmedSolicited, std::memory_order_seq_cst);
  }
  // What came before we armed fires too, or a program that sleeps now would miss it; but not what
  // an event told of already: programs arm anew before they poll (perftest). Either we see the tail
  // or hcad sees that we armed (both seq_cst); whoever disarms, fires.
  const std::uint32_t tail = page.tail.load(std::memory_order_seq_cst);
  const std::uint32_t by_hcad = page.told.load(std::memory_order_relaxed);
  const bool ours_is_newer = static_cast<std::int32_t>(cq.told - by_hcad) > 0;
  const std::uint32_t told = ours_is_newer ? cq.told : by_hcad;
  // How far the last one that asks for an event is from the tail.
  const std::uint32_t age =
      solicited_only != 0 ? tail - page.solicited.load(std::memory_order_relaxed) : 0;
  const bool unpolled = tail - cq.consumed > age;
  const bool untold = static_cast<std::int32_t>(tail - told - age) > 0;
  if (unpolled && untold && cq.channel != nullptr &&
      page.armed.exchange(kCqDisarmed, std::memory_order_seq_cst) != kCqDisarmed) {
    cq.told = tail;
    fire(cq);
  }
  return 0;
}

}  // namespace hca
