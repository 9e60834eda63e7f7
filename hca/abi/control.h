// What a verbs library asks its hcad over the node's socket (unix SEQPACKET): one request, one
// reply, in order, each a plain value of fixed size with descriptors beside it. One connection is
// one opened device: when it closes, hcad destroys all that it owned. A change raises
// kControlVersion.
//
// clang-format off
//   operation        request                     reply                  descriptors
//   hello            hello                       client                 sent: events pipe;
//                                                                       received: node page,
//                                                                       doorbells, eventfd
//   create_pd        -                           number = PD
//   destroy_pd       number = PD
//   register_mr      number = PD, mr             number = lkey, mr.rkey sent: memfd (optional)
//   reregister_mr    number = lkey, mr           number = lkey, mr.rkey sent: memfd (optional)
//   deregister_mr    number = lkey
//   alloc_mw         number = PD, mr.access = type  number = handle, mr.rkey
//   dealloc_mw       number = handle
//   advise           number = PD, mr.iova, mr.length, mr.rkey = lkey, mr.access: what for
//                                               mr.address: where in the program
//   create_channel   -                           number = channel       sent: write end of a pipe
//   destroy_channel  number = channel
//   create_cq        cq                          number = CQ            received: region
//   resize_cq        number = CQ, cq                                    received: region
//   adopt_cq         number = CQ, cq.depth: of that region; 0: never mind. EBUSY: what is posted
//                                               needs the old one, which stays
//   fire_cq          number = CQ: writes its record; for a program with no descriptor to do it
//   destroy_cq       number = CQ
//   create_qp        number = PD, qp             number = QPN, qp       received: region
//   open_qp          number = QPN, qp.xrcd       number = handle        received: region
//   create_srq       number = PD, srq            number = SRQ, srq      received: region
//   open_xrcd        number = kXrcd…             number = handle        sent: a file (optional)
//   close_xrcd       number = handle
//   find_gid         mcast.gid                   number = LID of the port with that GID
//   modify_srq       number = SRQ, srq.limit
//   query_srq        number = SRQ                srq
//   destroy_srq      number = SRQ
//   modify_qp        number = QPN, modify
//   query_qp         number = QPN                modify.attributes
//   destroy_qp       number = handle: the QPN, or what open_qp gave
//   attach_mcast     number = QPN, mcast
//   detach_mcast     number = QPN, mcast
//   set_rate         number = QPN, rate          rate; sent when the fabric has answered
//   open_cm          hello                       number = file          sent: a pipe; first on a
//                                                                       connection of its own
//   open_umad        hello                                              first on a connection of
//                                                                       its own
//   read_counter     counter                     value                  without a hello; a port's
//                                               counter by the name of its file (ENOENT: not ours)
//   goodbye          -                           behind it hcad touches no memory of the program's
//
// A descriptor that finds no room in its receiver is lost, and that request fails with EMFILE: sent
// ones by the reply; of an object whose region was lost the library gives the number back.
//
// After open_cm the connection carries commands of <rdma/rdma_user_cm.h> as they are (hca/cm/cm.h),
// each answered by a CmReply and what the command asked for. The pipe has a byte while events wait.
// After open_umad the program's descriptor is the connection: what it writes and reads are messages
// of <rdma/ib_user_mad.h> (hca/umad/agents.h). With what hcad has to answer comes an end of a pipe,
// into which it writes an UmadAnswer.
// clang-format on
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hca/abi/attributes.h"
#include "hca/abi/rings.h"

namespace hca {

inline constexpr std::uint32_t kControlVersion = 11;
inline constexpr std::uint32_t kControlMagic = 0x54434c46;  // "FLCT"
// Environment of a program on a node: the socket of its hcad.
inline constexpr char kNodeSocketVariable[] = "FLITNET_NODE_SOCKET";

enum class ControlOp : std::uint32_t {
  hello = 1,
  create_pd,
  destroy_pd,
  register_mr,
  reregister_mr,
  deregister_mr,
  create_channel,
  destroy_channel,
  create_cq,
  resize_cq,
  destroy_cq,
  create_qp,
  modify_qp,
  query_qp,
  destroy_qp,
  set_rate,
  create_srq,
  modify_srq,
  query_srq,
  destroy_srq,
  open_cm,
  alloc_mw,
  dealloc_mw,
  advise,
  attach_mcast,
  detach_mcast,
  open_xrcd,
  close_xrcd,
  open_qp,
  find_gid,
  adopt_cq,
  fire_cq,
  open_umad,
  goodbye,
  read_counter,
};

struct ControlHello {
  std::uint32_t magic;
  std::uint32_t version;      // kControlVersion
  std::uint32_t abi_version;  // kAbiVersion
  std::uint32_t reserved;
};
inline constexpr ControlHello kOurHello = {kControlMagic, kControlVersion, kAbiVersion, 0};

struct ControlMr {
  std::uint64_t address;
  std::uint64_t iova;
  std::uint64_t length;
  std::uint64_t file_offset;  // of `address` in the memfd, if one comes along
  std::uint32_t access;
  std::uint32_t mask;  // reregister_mr: IBV_REREG_MR_*
  std::uint32_t pd;    // reregister_mr
  std::uint32_t rkey;  // reply
};

inline constexpr std::uint32_t kNoChannel = 0xffffffff;

struct ControlCq {
  std::uint32_t depth;    // power of two
  std::uint32_t channel;  // kNoChannel: none
};

inline constexpr std::uint32_t kNoSrq = 0xffffffff;

struct ControlSrq {
  std::uint32_t max_wr;
  std::uint32_t max_sge;
  std::uint32_t limit;  // IBV_EVENT_SRQ_LIMIT_REACHED once fewer are posted; 0: never
  std::uint32_t xrc;    // 1: of type XRC, with these two
  std::uint32_t xrcd;   // handle
  std::uint32_t cq;
};

// With open_xrcd.
inline constexpr std::uint32_t kXrcdCreate = 1;     // the file's domain, if it has none
inline constexpr std::uint32_t kXrcdExclusive = 2;  // not if it has one

struct ControlQp {
  std::uint32_t send_cq;  // 0 where the type has none
  std::uint32_t recv_cq;
  std::uint32_t srq;   // kNoSrq: its own receive queue
  std::uint32_t xrcd;  // handle; xrc_recv
  // Capacity; in the reply as granted.
  std::uint32_t send_wr;
  std::uint32_t recv_wr;
  std::uint32_t send_sge;
  std::uint32_t recv_sge;
  std::uint32_t inline_bytes;
  QpType type;
  std::uint8_t signal_all;
  std::uint8_t reserved[2];

  constexpr QpCapacity capacity() const {
    return {send_wr, recv_wr, send_sge, recv_sge, inline_bytes};
  }
};

struct ControlModify {
  QpAttributes attributes;
  std::uint32_t mask;
  std::uint32_t reserved;
};

// Who refused: a router's number, or one of these.
inline constexpr std::int32_t kRejectedByNobody = -1;
inline constexpr std::int32_t kRejectedByHca = -2;

struct ControlRate {
  std::uint64_t rate_bps;  // 0: give back
  std::uint64_t peak_bps;
  std::int32_t rejected_by;  // reply
  std::uint32_t reserved;
};

struct ControlMcast {
  std::uint8_t gid[16];
  std::uint16_t lid;
  std::uint16_t reserved[3];
};

struct ControlCounter {
  ControlHello hello;
  char name[40];  // emu/metrics/port_files.h; ends with a zero
};

struct ControlRequest {
  ControlOp op;
  std::uint32_t number;
  union {
    ControlHello hello;
    ControlMr mr;
    ControlCq cq;
    ControlQp qp;
    ControlSrq srq;
    ControlModify modify;
    ControlRate rate;
    ControlMcast mcast;
    ControlCounter counter;
    std::uint8_t bytes[88];
  };
};

struct ControlReply {
  ControlOp op;        // of the request
  std::int32_t error;  // 0 or an errno
  std::uint32_t number;
  std::uint32_t client;  // hello
  union {
    ControlMr mr;
    ControlQp qp;
    ControlSrq srq;
    ControlModify modify;
    ControlRate rate;
    std::uint64_t value;
    std::uint8_t bytes[88];
  };
};

static_assert(sizeof(ControlRequest) == 96 && std::is_trivially_copyable_v<ControlRequest>);
static_assert(sizeof(ControlReply) == 104 && std::is_trivially_copyable_v<ControlReply>);
static_assert(offsetof(ControlRequest, mr) == 8 && offsetof(ControlReply, mr) == 16);
static_assert(sizeof(ControlMr) == 48 && sizeof(ControlQp) == 40 && sizeof(ControlModify) == 80 &&
              sizeof(ControlRate) == 24 && sizeof(ControlSrq) == 24);

// Before the bytes that answer a command of rdma_cm.
struct CmReply {
  std::int32_t error;  // 0 or an errno
  std::uint32_t bytes;
};
inline constexpr std::size_t kCmBytesMax = 1024;  // of a command or an answer, all included

// In the pipe that came with what a umad's program wrote.
struct UmadAnswer {
  std::int32_t error;   // 0 or an errno
  std::uint32_t agent;  // the number of the one that was registered
};

// In the pipe of a completion channel: one record per event, written whole. What a program has not
// read when it destroys an object is taken back: such a record is in no pipe when the reply comes.
struct ChannelRecord {
  std::uint32_t cq;
  std::uint32_t reserved;
};
// In the pipe of asynchronous events that came with hello.
struct AsyncRecord {
  std::uint32_t event;   // AsyncEvent
  std::uint32_t number;  // CQ, SRQ, or QP: its handle, a record for each that is open
};
static_assert(sizeof(ChannelRecord) == 8 && sizeof(AsyncRecord) == 8);

}  // namespace hca
