// Address handles: memory of the program, nothing of them is in hcad.
#include <cstring>
#include <new>

#include "hca/verbs/objects.h"

using namespace hca;

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  if (pd == nullptr || attributes == nullptr || attributes->port_num != 1 ||
      attributes->dlid == 0 || attributes->sl > 15 ||
      (attributes->is_global != 0 && attributes->grh.sgid_index != 0)) {
    return null_with(EINVAL);
  }
  auto* ah = new (std::nothrow) Ah{};
  if (ah == nullptr) return null_with(ENOMEM);
  ah->context = pd->context;
  ah->pd = pd;
  ah->attributes = *attributes;
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
  attributes->sl = wc->sl;
  attributes->src_path_bits = wc->dlid_path_bits;
  attributes->port_num = port;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;
  if (grh == nullptr) {
    errno = EINVAL;
    return -1;
  }
  const std::uint32_t flow = __builtin_bswap32(grh->version_tclass_flow);
  attributes->is_global = 1;
  attributes->grh.dgid = grh->sgid;
  attributes->grh.sgid_index = 0;  // the only one
  attributes->grh.hop_limit = 0xff;
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

// Ethernet addresses belong to RoCE.
int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, std::uint8_t*, std::uint16_t*) {
  errno = EOPNOTSUPP;
  return -1;
}

}  // extern "C"
