#include "hca/verbs/qp_attributes.h"

#include <algorithm>
#include <iterator>

namespace hca {

namespace {

AddressVector to_vector(const ibv_ah_attr& from) {
  AddressVector to{};
  std::copy(std::begin(from.grh.dgid.raw), std::end(from.grh.dgid.raw), to.dgid);
  to.flow_label = from.grh.flow_label;
  to.dlid = from.dlid;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.is_global = from.is_global;
  to.sgid_index = from.grh.sgid_index;
  to.hop_limit = from.grh.hop_limit;
  to.traffic_class = from.grh.traffic_class;
  to.static_rate = from.static_rate;
  to.port_num = from.port_num;
  return to;
}

ibv_ah_attr from_vector(const AddressVector& from) {
  ibv_ah_attr to{};
  std::copy(std::begin(from.dgid), std::end(from.dgid), to.grh.dgid.raw);
  to.grh.flow_label = from.flow_label;
  to.grh.sgid_index = from.sgid_index;
  to.grh.hop_limit = from.hop_limit;
  to.grh.traffic_class = from.traffic_class;
  to.dlid = from.dlid;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.static_rate = from.static_rate;
  to.is_global = from.is_global;
  to.port_num = from.port_num;
  return to;
}

// The numbers that are the same on both sides, whichever way they go.
template <class From, class To>
void copy_numbers(const From& from, To& to) {
  to.qkey = from.qkey;
  to.rq_psn = from.rq_psn;
  to.sq_psn = from.sq_psn;
  to.dest_qp_num = from.dest_qp_num;
  to.pkey_index = from.pkey_index;
  to.en_sqd_async_notify = from.en_sqd_async_notify;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.port_num = from.port_num;
  to.timeout = from.timeout;
  to.retry_cnt = from.retry_cnt;
  to.rnr_retry = from.rnr_retry;
}

}  // namespace

QpAttributes to_attributes(const ibv_qp_attr& from) {
  QpAttributes to{};
  copy_numbers(from, to);
  to.state = static_cast<QpState>(from.qp_state);
  to.cur_state = static_cast<QpState>(from.cur_qp_state);
  to.path_mtu = static_cast<std::uint8_t>(from.path_mtu);
  to.path_mig_state = static_cast<std::uint8_t>(from.path_mig_state);
  to.access_flags = from.qp_access_flags;
  to.av = to_vector(from.ah_attr);
  return to;
}

void from_attributes(const QpAttributes& from, ibv_qp_attr& to) {
  to = {};
  copy_numbers(from, to);
  to.qp_state = static_cast<ibv_qp_state>(from.state);
  to.cur_qp_state = static_cast<ibv_qp_state>(from.cur_state);
  to.path_mtu = static_cast<ibv_mtu>(from.path_mtu);
  to.path_mig_state = static_cast<ibv_mig_state>(from.path_mig_state);
  to.qp_access_flags = from.access_flags;
  to.ah_attr = from_vector(from.av);
  to.sq_draining = from.sq_draining;
  to.rate_limit = from.rate_kbps;
}

}  // namespace hca
