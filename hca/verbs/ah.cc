// Address handles: memory of the program, nothing of them is in hcad.
#include <cstring>
#include <new>

#include "hca/verbs/objects.h"

namespace hca {

namespace {

constexpr std::uint16_t kFirstGroupLid = 0xc000;

bool is_roce(const Context& context) {
  return context.node().link_layer == IBV_LINK_LAYER_ETHERNET;
}

// Where the port with this GID is; a group is at any group's LID, for its members go by the GID.
int find_gid(ibv_context* context, const ibv_gid& gid, std::uint16_t& lid) {
  if (gid.raw[0] == 0xff) {
    lid = kFirstGroupLid;
    return 0;
  }
  ControlRequest request{};
  request.op = ControlOp::find_gid;
  std::memcpy(request.mcast.gid, gid.raw, sizeof request.mcast.gid);
  Answered answered;
  if (const int error = to_context(context)->link().ask(request, answered)) return error;
  lid = static_cast<std::uint16_t>(answered.reply.number);
  return 0;
}

// Between IPv4 addresses the last 20 of the 40 bytes are an IPv4 header.
struct Ipv4 {
  std::uint8_t version_length;
  std::uint8_t type_of_service;
  std::uint8_t between[6];
  std::uint8_t time_to_live;
  std::uint8_t protocol;
  std::uint8_t checksum[2];
  std::uint8_t source[4];
  std::uint8_t destination[4];
};
static_assert(sizeof(Ipv4) == 20);

const Ipv4* ipv4_in(const ibv_grh& grh) {
  const auto* ip =
      reinterpret_cast<const Ipv4*>(reinterpret_cast<const std::byte*>(&grh) + sizeof grh - 20);
  const bool is_six = __builtin_bswap32(grh.version_tclass_flow) >> 28 == 6;
  return !is_six && ip->version_length == 0x45 ? ip : nullptr;
}

ibv_gid mapped(const std::uint8_t (&v4)[4]) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(&gid.raw[12], v4, sizeof v4);
  return gid;
}

bool operator==(const ibv_gid& a, const ibv_gid& b) {
  return std::memcmp(a.raw, b.raw, sizeof a.raw) == 0;
}

// The index of our GID that a peer wrote to.
std::uint8_t index_of(ibv_context* context, const ibv_gid& ours) {
  ibv_gid gid;
  for (int i = 0; ibv_query_gid(context, 1, i, &gid) == 0; ++i) {
    if (gid == ours) return static_cast<std::uint8_t>(i);
  }
  return 0;
}

}  // namespace

}  // namespace hca

using namespace hca;

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  if (pd == nullptr || attributes == nullptr || attributes->port_num != 1 || attributes->sl > 15) {
    return null_with(EINVAL);
  }
  const bool roce = is_roce(*to_context(pd->context));
  const std::uint8_t gids = roce ? 2 : 1;
  if (attributes->is_global != 0 ? attributes->grh.sgid_index >= gids : roce) {
    return null_with(EINVAL);
  }
  std::uint16_t lid = attributes->dlid;
  if (roce) {
    if (const int error = find_gid(pd->context, attributes->grh.dgid, lid)) return null_with(error);
  }
  if (lid == 0) return null_with(EINVAL);
  auto* ah = new (std::nothrow) Ah{};
  if (ah == nullptr) return null_with(ENOMEM);
  ah->context = pd->context;
  ah->pd = pd;
  ah->attributes = *attributes;
  ah->attributes.dlid = lid;
  return ah;
}

int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* wc, ibv_grh* grh,
                        ibv_ah_attr* attributes) {
  if (context == nullptr || wc == nullptr || attributes == nullptr || port != 1) {
    errno = EINVAL;
    return -1;
  }
  *attributes = {};
  attributes->dlid = wc->slid;
  const bool roce = is_roce(*to_context(context));
  attributes->sl = static_cast<std::uint8_t>(roce ? wc->vendor_err & 15 : wc->sl);  // abi/cqe.h
  attributes->src_path_bits = wc->dlid_path_bits;
  attributes->port_num = port;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;
  if (grh == nullptr) {
    errno = EINVAL;
    return -1;
  }
  attributes->is_global = 1;
  attributes->grh.hop_limit = 0xff;
  if (const Ipv4* ip = roce ? ipv4_in(*grh) : nullptr) {
    attributes->grh.dgid = mapped(ip->source);
    attributes->grh.sgid_index = index_of(context, mapped(ip->destination));
    attributes->grh.traffic_class = ip->type_of_service;
    return 0;
  }
  const std::uint32_t flow = __builtin_bswap32(grh->version_tclass_flow);
  attributes->grh.dgid = grh->sgid;
  attributes->grh.sgid_index = index_of(context, grh->dgid);
  attributes->grh.flow_label = flow & 0xfffff;
  attributes->grh.traffic_class = static_cast<std::uint8_t>(flow >> 20 & 0xff);
  return 0;
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, std::uint8_t port) {
  if (pd == nullptr) return null_with(EINVAL);
  ibv_ah_attr attributes;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attributes) != 0) return nullptr;
  return ibv_create_ah(pd, &attributes);
}

int ibv_destroy_ah(ibv_ah* ah) {
  if (ah == nullptr) return EINVAL;
  delete static_cast<Ah*>(ah);
  return 0;
}

// The Ethernet address of a port: locally administered, with its place in the cluster. Nothing of
// ours carries it; programs for RoCE ask for it.
int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attributes, std::uint8_t* mac,
                                std::uint16_t* vlan) {
  if (context == nullptr || attributes == nullptr || mac == nullptr) {
    errno = EINVAL;
    return -1;
  }
  if (!is_roce(*to_context(context))) {
    errno = EOPNOTSUPP;
    return -1;
  }
  constexpr std::uint16_t kNoVlan = 0xffff;
  if (vlan != nullptr) *vlan = kNoVlan;
  const ibv_gid& gid = attributes->grh.dgid;
  std::uint16_t lid = 0;
  if (const int error = find_gid(context, gid, lid)) {
    errno = error;
    return -1;
  }
  if (gid.raw[0] == 0xff) {  // as IPv6 has its groups
    mac[0] = mac[1] = 0x33;
    std::memcpy(mac + 2, &gid.raw[12], 4);
    return 0;
  }
  const std::uint8_t own[] = {
      0x02, 0xc9, 0x03, 0x00, static_cast<std::uint8_t>(lid >> 8), static_cast<std::uint8_t>(lid)};
  std::memcpy(mac, own, sizeof own);
  return 0;
}

}  // extern "C"
