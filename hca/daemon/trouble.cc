// The words name verbs' constants, as their reader has them in a program.
#include "hca/daemon/trouble.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

namespace hca {

namespace {

struct Name {
  std::uint32_t bit;
  std::string_view name;
};

constexpr Name kAttributes[] = {
    {kQpState, "IBV_QP_STATE"},
    {kQpCurState, "IBV_QP_CUR_STATE"},
    {kQpEnSqdAsyncNotify, "IBV_QP_EN_SQD_ASYNC_NOTIFY"},
    {kQpAccessFlags, "IBV_QP_ACCESS_FLAGS"},
    {kQpPkeyIndex, "IBV_QP_PKEY_INDEX"},
    {kQpPort, "IBV_QP_PORT"},
    {kQpQkey, "IBV_QP_QKEY"},
    {kQpAv, "IBV_QP_AV"},
    {kQpPathMtu, "IBV_QP_PATH_MTU"},
    {kQpTimeout, "IBV_QP_TIMEOUT"},
    {kQpRetryCnt, "IBV_QP_RETRY_CNT"},
    {kQpRnrRetry, "IBV_QP_RNR_RETRY"},
    {kQpRqPsn, "IBV_QP_RQ_PSN"},
    {kQpMaxQpRdAtomic, "IBV_QP_MAX_QP_RD_ATOMIC"},
    {kQpAltPath, "IBV_QP_ALT_PATH"},
    {kQpMinRnrTimer, "IBV_QP_MIN_RNR_TIMER"},
    {kQpSqPsn, "IBV_QP_SQ_PSN"},
    {kQpMaxDestRdAtomic, "IBV_QP_MAX_DEST_RD_ATOMIC"},
    {kQpPathMigState, "IBV_QP_PATH_MIG_STATE"},
    {kQpCap, "IBV_QP_CAP"},
    {kQpDestQpn, "IBV_QP_DEST_QPN"},
};

constexpr Name kAccesses[] = {
    {kAccessLocalWrite, "IBV_ACCESS_LOCAL_WRITE"},
    {kAccessRemoteWrite, "IBV_ACCESS_REMOTE_WRITE"},
    {kAccessRemoteRead, "IBV_ACCESS_REMOTE_READ"},
    {kAccessRemoteAtomic, "IBV_ACCESS_REMOTE_ATOMIC"},
};

constexpr std::string_view kStates[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
static_assert(std::size(kStates) == kQpStates);

std::string names(std::span<const Name> known, std::uint32_t bits) {
  std::string text;
  for (const auto& [bit, name] : known) {
    if ((bits & bit) == 0) continue;
    if (!text.empty()) text += " | ";
    text += name;
  }
  return text.empty() ? fmt::format("{:#x}", bits) : text;
}

std::string_view state(QpState value) { return kStates[static_cast<std::size_t>(value)]; }

std::string node(emu::Lid lid, std::span<const emu::NodeConfig> nodes) {
  if (lid >= 1 && lid <= nodes.size()) return nodes[lid - 1u].name;
  return fmt::format("LID {}", lid);
}

std::string key(const Trouble& t) {
  switch (t.fault) {
    case KeyFault::unknown:
      return fmt::format("no memory region or window has the key {:#x}", t.key);
    case KeyFault::domain:
      return fmt::format("key {:#x} is of another protection domain", t.key);
    case KeyFault::unbound:
      return fmt::format("key {:#x} is of a memory window that is not bound, or no longer", t.key);
    case KeyFault::access:
      return fmt::format("key {:#x} was registered or bound without {}", t.key,
                         names(kAccesses, t.access));
    case KeyFault::window:
      return fmt::format("key {:#x} is of a memory window that is not for this QP", t.key);
    case KeyFault::bounds:
      return fmt::format("{} bytes at {:#x} are not all in key {:#x}, which has {} bytes at {:#x}",
                         t.length, t.address, t.key, t.size, t.start);
    case KeyFault::none:
      break;
  }
  return fmt::format("key {:#x}", t.key);
}

std::string request(const Trouble& t) {
  switch (t.request) {
    case RequestFault::order:
      return "its opcode is none that this QP takes, or not at this place of a message";
    case RequestFault::no_depth:
      return "a READ or atomic operation, but max_dest_rd_atomic (IBV_QP_MAX_DEST_RD_ATOMIC) is 0";
    case RequestFault::depth:
      return "more READs outstanding than a QP has room for";
    case RequestFault::packet:
      return fmt::format(
          "a packet has {} bytes of payload, this QP takes {}: path MTU (IBV_QP_PATH_MTU) and "
          "network.packet_size are to be the same at both ends",
          t.length, t.size);
    case RequestFault::length:
      return fmt::format("{} bytes, where {} are left or allowed", t.length, t.size);
    case RequestFault::alignment:
      return fmt::format("the address {:#x} is not a multiple of {}", t.address, t.size);
    case RequestFault::srq:
      return "its message is for no SRQ of this XRC domain, or changes it midway";
    case RequestFault::none:
      break;
  }
  return "no reason is known";
}

std::string ended(const Trouble& t, const std::string& peer, bool known) {
  switch (t.status) {
    case WcStatus::retry_exc_err:
      if (!known) return fmt::format("no node has {}", peer);
      return fmt::format(
          "{} did not answer: is its QP {:#x} in RTR, connected to this one, and do "
          "the PSNs agree?",
          peer, t.peer_qpn);
    case WcStatus::rnr_retry_exc_err:
      return fmt::format("QP {:#x} of {} had no receive request posted", t.peer_qpn, peer);
    case WcStatus::rem_access_err:
    case WcStatus::rem_inv_req_err:
    case WcStatus::rem_op_err:
      return fmt::format("{} refused it; its log says why", peer);
    case WcStatus::loc_prot_err:
      return "the memory of its list cannot be had";
    case WcStatus::loc_len_err:
      return fmt::format("{} bytes are more than one message may have", t.length);
    case WcStatus::loc_qp_op_err:
      return "its opcode, inline length or list is not one that this QP takes";
    case WcStatus::mw_bind_err:
      return "the memory window cannot be bound so";
    default:
      return fmt::format("status {}", static_cast<int>(t.status));
  }
}

std::string transition(const Trouble& t) {
  const std::string way = fmt::format("ibv_modify_qp from {} to {}", state(t.from), state(t.to));
  if (t.kind == TroubleKind::value)
    return fmt::format("{}: the value of {} is out of range", way, names(kAttributes, t.surplus));
  if (t.missing != 0) return fmt::format("{} lacks {}", way, names(kAttributes, t.missing));
  if (t.surplus != 0) return fmt::format("{} does not take {}", way, names(kAttributes, t.surplus));
  return fmt::format("{}: there is no such transition", way);
}

}  // namespace

std::string describe(const Trouble& t, std::span<const emu::NodeConfig> nodes) {
  const std::string peer = node(t.peer_lid, nodes);
  switch (t.kind) {
    case TroubleKind::send_key:
      return fmt::format("send request {}: {}", t.wr_id, key(t));
    case TroubleKind::recv_key:
      return fmt::format("receive request {}: {}", t.wr_id, key(t));
    case TroubleKind::remote_key:
      return fmt::format("what {} asked for is refused: {}", peer, key(t));
    case TroubleKind::remote_flag:
      return fmt::format("what {} asked for is refused: the QP's access flags lack {}", peer,
                         names(kAccesses, t.access));
    case TroubleKind::remote_memory:
      return fmt::format("the memory for what {} asked for cannot be had", peer);
    case TroubleKind::invalidate:
      return fmt::format(
          "what {} asked for is refused: no memory window that is bound for this QP has the key "
          "{:#x}",
          peer, t.key);
    case TroubleKind::request:
      return fmt::format("what {} asked for is refused: {}", peer, request(t));
    case TroubleKind::too_long:
      return fmt::format("receive request {} has {} bytes, the message of {} at least {}", t.wr_id,
                         t.size, peer, t.length);
    case TroubleKind::no_reads:
      return fmt::format(
          "send request {} waits for ever: it is a READ or atomic operation, of which the QP may "
          "have none outstanding; give max_rd_atomic (IBV_QP_MAX_QP_RD_ATOMIC) from RTR to RTS",
          t.wr_id);
    case TroubleKind::ended:
      return fmt::format("send request {} failed: {}", t.wr_id,
                         ended(t, peer, t.peer_lid >= 1 && t.peer_lid <= nodes.size()));
    case TroubleKind::no_qp:
      if (!t.there) return fmt::format("{} sends to it, but there is no such QP", peer);
      return fmt::format("{} sends to it, which it does not take in state {} or of this service",
                         peer, state(t.from));
    case TroubleKind::stranger:
      return fmt::format("{} sends to it, to which it is not connected", peer);
    case TroubleKind::transition:
    case TroubleKind::value:
      return transition(t);
  }
  return "?";
}

}  // namespace hca
