// What verbs objects are made of, in the numbers of <infiniband/verbs.h>: kinds and states of QPs,
// access flags, the attribute mask of modify, address vectors. The verbs library, hcad's control
// protocol and hca/host all speak in these.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hca {

enum class QpType : std::uint8_t { rc = 2, uc = 3, ud = 4, xrc_send = 9, xrc_recv = 10 };
enum class QpState : std::uint8_t { reset = 0, init, rtr, rts, sqd, sqe, err };
inline constexpr std::size_t kQpStates = 7;

// IBV_ACCESS_*.
inline constexpr std::uint32_t kAccessLocalWrite = 1u << 0;
inline constexpr std::uint32_t kAccessRemoteWrite = 1u << 1;
inline constexpr std::uint32_t kAccessRemoteRead = 1u << 2;
inline constexpr std::uint32_t kAccessRemoteAtomic = 1u << 3;
inline constexpr std::uint32_t kAccessMwBind = 1u << 4;
inline constexpr std::uint32_t kAccessZeroBased = 1u << 5;
inline constexpr std::uint32_t kAccessOnDemand = 1u << 6;

// IBV_QP_*: attribute mask of modify.
inline constexpr std::uint32_t kQpState = 1u << 0;
inline constexpr std::uint32_t kQpCurState = 1u << 1;
inline constexpr std::uint32_t kQpEnSqdAsyncNotify = 1u << 2;
inline constexpr std::uint32_t kQpAccessFlags = 1u << 3;
inline constexpr std::uint32_t kQpPkeyIndex = 1u << 4;
inline constexpr std::uint32_t kQpPort = 1u << 5;
inline constexpr std::uint32_t kQpQkey = 1u << 6;
inline constexpr std::uint32_t kQpAv = 1u << 7;
inline constexpr std::uint32_t kQpPathMtu = 1u << 8;
inline constexpr std::uint32_t kQpTimeout = 1u << 9;
inline constexpr std::uint32_t kQpRetryCnt = 1u << 10;
inline constexpr std::uint32_t kQpRnrRetry = 1u << 11;
inline constexpr std::uint32_t kQpRqPsn = 1u << 12;
inline constexpr std::uint32_t kQpMaxQpRdAtomic = 1u << 13;
inline constexpr std::uint32_t kQpAltPath = 1u << 14;
inline constexpr std::uint32_t kQpMinRnrTimer = 1u << 15;
inline constexpr std::uint32_t kQpSqPsn = 1u << 16;
inline constexpr std::uint32_t kQpMaxDestRdAtomic = 1u << 17;
inline constexpr std::uint32_t kQpPathMigState = 1u << 18;
inline constexpr std::uint32_t kQpCap = 1u << 19;
inline constexpr std::uint32_t kQpDestQpn = 1u << 20;

// IBV_EVENT_*: asynchronous events.
enum class AsyncEvent : std::uint8_t {
  cq_err = 0,
  qp_fatal = 1,
  qp_req_err = 2,
  qp_access_err = 3,
  comm_est = 4,
  sq_drained = 5,
  path_mig = 6,
  path_mig_err = 7,
  device_fatal = 8,
  port_active = 9,
  port_err = 10,
  srq_err = 14,
  srq_limit_reached = 15,
  qp_last_wqe_reached = 16,
  client_reregister = 17,
};

// What an event's number is of.
enum class AsyncSource : std::uint8_t { port, cq, qp, srq };

constexpr AsyncSource source_of(AsyncEvent event) {
  switch (event) {
    case AsyncEvent::cq_err:
      return AsyncSource::cq;
    case AsyncEvent::srq_err:
    case AsyncEvent::srq_limit_reached:
      return AsyncSource::srq;
    case AsyncEvent::qp_fatal:
    case AsyncEvent::qp_req_err:
    case AsyncEvent::qp_access_err:
    case AsyncEvent::comm_est:
    case AsyncEvent::sq_drained:
    case AsyncEvent::path_mig:
    case AsyncEvent::path_mig_err:
    case AsyncEvent::qp_last_wqe_reached:
      return AsyncSource::qp;
    default:
      return AsyncSource::port;
  }
}

// Address vector of a connected QP or an address handle.
struct AddressVector {
  std::uint8_t dgid[16];
  std::uint32_t flow_label;
  std::uint16_t dlid;
  std::uint8_t sl;
  std::uint8_t src_path_bits;
  std::uint8_t is_global;
  std::uint8_t sgid_index;
  std::uint8_t hop_limit;
  std::uint8_t traffic_class;
  std::uint8_t static_rate;
  std::uint8_t port_num;
  std::uint8_t reserved[2];
};
static_assert(sizeof(AddressVector) == 32 && offsetof(AddressVector, dlid) == 20 &&
              offsetof(AddressVector, port_num) == 29);

// ibv_qp_attr without the alternate path (which is refused): what modify and query carry.
struct QpAttributes {
  QpState state;
  QpState cur_state;
  std::uint8_t path_mtu;  // IBV_MTU_*
  std::uint8_t path_mig_state;
  std::uint32_t qkey;
  std::uint32_t rq_psn;
  std::uint32_t sq_psn;
  std::uint32_t dest_qp_num;
  std::uint32_t access_flags;
  AddressVector av;
  std::uint16_t pkey_index;
  std::uint8_t en_sqd_async_notify;
  std::uint8_t sq_draining;
  std::uint8_t max_rd_atomic;
  std::uint8_t max_dest_rd_atomic;
  std::uint8_t min_rnr_timer;
  std::uint8_t port_num;
  std::uint8_t timeout;
  std::uint8_t retry_cnt;
  std::uint8_t rnr_retry;
  std::uint8_t reserved;
  std::uint32_t rate_kbps;  // granted by admission; 0 none
};
static_assert(sizeof(QpAttributes) == 72 && offsetof(QpAttributes, av) == 24 &&
              offsetof(QpAttributes, pkey_index) == 56 && offsetof(QpAttributes, timeout) == 64 &&
              offsetof(QpAttributes, rate_kbps) == 68);

}  // namespace hca
