// The private symbols of libibverbs (IBVERBS_PRIVATE_34), for the drop-in only: providers and
// librdmacm are linked to it and must load. What only a kernel device needs refuses; what librdmacm
// and providers call at start works. Calls pass their arguments in registers, so a refusal may
// leave them out of its signature.
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <cstddef>

#include "hca/verbs/objects.h"

extern "C" {

#define FLITNET_REFUSE(name) \
  int name() { return EOPNOTSUPP; }
#define FLITNET_REFUSE_POINTER(name) \
  void* name() { return hca::null_with(EOPNOTSUPP); }
#define FLITNET_NOTHING(name) \
  void name() {}

FLITNET_NOTHING(verbs_register_driver_34)
FLITNET_NOTHING(ibv_register_driver)
FLITNET_NOTHING(__verbs_log)
FLITNET_NOTHING(verbs_set_ops)
FLITNET_NOTHING(verbs_uninit_context)
FLITNET_NOTHING(verbs_init_cq)
FLITNET_REFUSE_POINTER(_verbs_init_and_alloc_context)
FLITNET_REFUSE_POINTER(verbs_open_device)
FLITNET_REFUSE(execute_ioctl)
FLITNET_REFUSE(ibv_read_ibdev_sysfs_file)
unsigned __ioctl_final_num_attrs(unsigned count, void*) { return count; }
extern bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy = false;

#include "hca/verbs/private_commands.inc"

// librdmacm hands over what the kernel's rdma_ucm wrote (rdma/ib_user_verbs.h, ib_user_sa.h).

void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from) {
  *to = {};
  std::copy_n(from->grh.dgid, 16, to->grh.dgid.raw);
  to->grh.flow_label = from->grh.flow_label;
  to->grh.sgid_index = from->grh.sgid_index;
  to->grh.hop_limit = from->grh.hop_limit;
  to->grh.traffic_class = from->grh.traffic_class;
  to->dlid = from->dlid;
  to->sl = from->sl;
  to->src_path_bits = from->src_path_bits;
  to->static_rate = from->static_rate;
  to->is_global = from->is_global;
  to->port_num = from->port_num;
}

// qp_state stays: librdmacm has set it to the state that it goes to.
void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from) {
  to->cur_qp_state = static_cast<ibv_qp_state>(from->cur_qp_state);
  to->path_mtu = static_cast<ibv_mtu>(from->path_mtu);
  to->path_mig_state = static_cast<ibv_mig_state>(from->path_mig_state);
  to->qkey = from->qkey;
  to->rq_psn = from->rq_psn;
  to->sq_psn = from->sq_psn;
  to->dest_qp_num = from->dest_qp_num;
  to->qp_access_flags = from->qp_access_flags;
  to->cap = {from->max_send_wr, from->max_recv_wr, from->max_send_sge, from->max_recv_sge,
             from->max_inline_data};
  ibv_copy_ah_attr_from_kern(&to->ah_attr, &from->ah_attr);
  ibv_copy_ah_attr_from_kern(&to->alt_ah_attr, &from->alt_ah_attr);
  to->pkey_index = from->pkey_index;
  to->alt_pkey_index = from->alt_pkey_index;
  to->en_sqd_async_notify = from->en_sqd_async_notify;
  to->sq_draining = from->sq_draining;
  to->max_rd_atomic = from->max_rd_atomic;
  to->max_dest_rd_atomic = from->max_dest_rd_atomic;
  to->min_rnr_timer = from->min_rnr_timer;
  to->port_num = from->port_num;
  to->timeout = from->timeout;
  to->retry_cnt = from->retry_cnt;
  to->rnr_retry = from->rnr_retry;
  to->alt_port_num = from->alt_port_num;
  to->alt_timeout = from->alt_timeout;
}

void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from) {
  std::copy_n(from->dgid, 16, to->dgid.raw);
  std::copy_n(from->sgid, 16, to->sgid.raw);
  to->dlid = from->dlid;
  to->slid = from->slid;
  to->raw_traffic = static_cast<int>(from->raw_traffic);
  to->flow_label = from->flow_label;
  to->hop_limit = from->hop_limit;
  to->traffic_class = from->traffic_class;
  to->reversible = static_cast<int>(from->reversible);
  to->numb_path = from->numb_path;
  to->pkey = from->pkey;
  to->sl = from->sl;
  to->mtu_selector = from->mtu_selector;
  to->mtu = static_cast<std::uint8_t>(from->mtu);
  to->rate_selector = from->rate_selector;
  to->rate = from->rate;
  to->packet_life_time_selector = from->packet_life_time_selector;
  to->packet_life_time = from->packet_life_time;
  to->preference = from->preference;
}

void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from) {
  std::copy_n(from->dgid.raw, 16, to->dgid);
  std::copy_n(from->sgid.raw, 16, to->sgid);
  to->dlid = from->dlid;
  to->slid = from->slid;
  to->raw_traffic = static_cast<std::uint32_t>(from->raw_traffic);
  to->flow_label = from->flow_label;
  to->hop_limit = from->hop_limit;
  to->traffic_class = from->traffic_class;
  to->reversible = static_cast<std::uint32_t>(from->reversible);
  to->numb_path = from->numb_path;
  to->pkey = from->pkey;
  to->sl = from->sl;
  to->mtu_selector = from->mtu_selector;
  to->mtu = from->mtu;
  to->rate_selector = from->rate_selector;
  to->rate = from->rate;
  to->packet_life_time_selector = from->packet_life_time_selector;
  to->packet_life_time = from->packet_life_time;
  to->preference = from->preference;
}

}  // extern "C"
