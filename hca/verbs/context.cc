// What a device says of itself: attributes, port, GIDs, partition keys, time. And the table of
// functions that programs call through their context.
#include <cstring>

#include "emu/base/guid.h"
#include "emu/base/link_speed.h"
#include "hca/abi/limits.h"
#include "hca/verbs/objects.h"

#undef ibv_query_port

namespace hca {

namespace {

constexpr int kPort = 1;
constexpr std::uint64_t kClockKhz = 1'000'000;  // completion timestamps are emulated nanoseconds

// hcad copies by the kernel, which brings pages in: all memory is paged on demand here.
constexpr std::uint32_t kOdpDatagram = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV;
constexpr std::uint32_t kOdpUnreliable =
    kOdpDatagram | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_SRQ_RECV;
constexpr ibv_odp_caps kOnDemand = {IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
                                    {kOdpUnreliable | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC,
                                     kOdpUnreliable, kOdpDatagram | IBV_ODP_SUPPORT_SRQ_RECV}};

bool is_roce(const NodePage& node) { return node.link_layer == IBV_LINK_LAYER_ETHERNET; }

int gid_count(const NodePage& node) { return is_roce(node) ? 2 : 1; }

// 0: the subnet's prefix and the GUID; 1: the IP address, as ::ffff:a.b.c.d.
ibv_gid port_gid(const NodePage& node, int index) {
  ibv_gid gid{};
  if (index == 0) {
    gid.global.subnet_prefix = __builtin_bswap64(node.gid_prefix);
    gid.global.interface_id = __builtin_bswap64(node.port_guid);
  } else {
    gid.raw[10] = gid.raw[11] = 0xff;
    const std::uint32_t v4 = __builtin_bswap32(node.ipv4);
    std::memcpy(&gid.raw[12], &v4, sizeof v4);
  }
  return gid;
}

void fill_device(const NodePage& node, ibv_device_attr& a) {
  a = {};
  std::memcpy(a.fw_ver, "0.1.0", 6);
  a.node_guid = a.sys_image_guid = __builtin_bswap64(node.node_guid);
  a.max_mr_size = kMaxMrBytes;
  a.page_size_cap = 0xfffffffffffff000;
  a.vendor_id = node.vendor_id;
  a.vendor_part_id = node.vendor_part_id;
  a.hw_ver = emu::kHardwareVersion;
  a.max_qp = static_cast<int>(kMaxQp);
  a.max_qp_wr = static_cast<int>(kMaxQpWr);
  a.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
                       IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                       IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC |
                       // Of these extensions a program has SEND with invalidate and LOCAL_INV.
                       IBV_DEVICE_MEM_MGT_EXTENSIONS;
  a.max_sge = a.max_sge_rd = static_cast<int>(kMaxSge);
  a.max_cq = static_cast<int>(kMaxCq);
  a.max_cqe = static_cast<int>(kMaxCqe);
  a.max_mr = static_cast<int>(kMaxMr);
  a.max_mw = static_cast<int>(kMaxMr);
  a.max_pd = static_cast<int>(kMaxPd);
  a.max_srq = static_cast<int>(kMaxSrq);
  a.max_srq_wr = static_cast<int>(kMaxSrqWr);
  a.max_srq_sge = static_cast<int>(kMaxSge);
  a.max_qp_rd_atom = a.max_qp_init_rd_atom = static_cast<int>(kMaxRdAtomic);
  a.max_res_rd_atom = static_cast<int>(kMaxRdAtomic * kMaxQp);
  a.atomic_cap = IBV_ATOMIC_HCA;
  a.max_ah = 1 << 20;  // address handles are only memory here
  a.max_mcast_grp = static_cast<int>(kMaxMcastGroups);
  a.max_mcast_qp_attach = static_cast<int>(kMaxMcastQps);
  a.max_total_mcast_qp_attach = static_cast<int>(kMaxMcastGroups * kMaxMcastQps);
  a.max_pkeys = 1;
  a.local_ca_ack_delay = 15;
  a.phys_port_cnt = 1;
}

void fill_port(const NodePage& node, ibv_port_attr& a) {
  a = {};
  a.state = static_cast<ibv_port_state>(node.port_state.load(std::memory_order_relaxed));
  a.max_mtu = static_cast<ibv_mtu>(node.max_mtu);
  a.active_mtu = static_cast<ibv_mtu>(node.active_mtu);
  a.gid_tbl_len = gid_count(node);
  a.port_cap_flags = is_roce(node)
                         ? static_cast<std::uint32_t>(IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS)
                         : emu::port_capabilities(node.link_bps, node.lid == node.sm_lid);
  if (is_roce(node)) a.flags = IBV_QPF_GRH_REQUIRED;
  a.max_msg_sz = node.max_message_bytes;
  a.pkey_tbl_len = 1;
  a.lid = node.lid;
  a.sm_lid = node.sm_lid;
  a.max_vl_num = 5;  // IBA's code for VL0 ... VL14
  a.subnet_timeout = 18;
  a.phys_state = a.state == IBV_PORT_ACTIVE ? 5 : 2;  // LinkUp, Polling
  a.link_layer = node.link_layer;
  const emu::LinkSpeed& speed = emu::link_speed_of(node.link_bps);
  a.active_width = speed.width;
  a.active_speed = speed.speed;
}

}  // namespace

int query_device(ibv_context* context, const ibv_query_device_ex_input* input,
                 ibv_device_attr_ex* out, std::size_t size) {
  if (context == nullptr || out == nullptr || size < sizeof(ibv_device_attr)) return EINVAL;
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  const NodePage& node = to_context(context)->node();
  ibv_device_attr_ex a{};
  fill_device(node, a.orig_attr);
  a.completion_timestamp_mask = ~std::uint64_t{0};
  a.hca_core_clock = kClockKhz;
  constexpr std::uint64_t kAtomicWrite = 1ULL << 40;  // the kernel's; verbs.h has no name for it
  a.device_cap_flags_ex = a.orig_attr.device_cap_flags | kAtomicWrite;
  a.packet_pacing_caps.qp_rate_limit_min = 1;
  a.packet_pacing_caps.qp_rate_limit_max = static_cast<std::uint32_t>(node.link_bps / 1000);
  a.packet_pacing_caps.supported_qpts =
      1U << IBV_QPT_RC | 1U << IBV_QPT_UD | 1U << IBV_QPT_XRC_SEND;
  a.phys_port_cnt_ex = 1;
  a.max_dm_size = kMaxDmBytes;
  a.odp_caps = kOnDemand;
  a.xrc_odp_caps = kOnDemand.per_transport_caps.rc_odp_caps;
  // A program built against older headers has a shorter structure.
  std::memcpy(static_cast<void*>(out), &a, size < sizeof a ? size : sizeof a);
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out, std::size_t size) {
  if (context == nullptr || out == nullptr || port != kPort) return EINVAL;
  ibv_port_attr a;
  fill_port(to_context(context)->node(), a);
  std::memcpy(static_cast<void*>(out), &a, size < sizeof a ? size : sizeof a);
  return 0;
}

int query_rt_values(ibv_context* context, ibv_values_ex* values) {
  if (context == nullptr || values == nullptr) return EINVAL;
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0) return EINVAL;
  const std::uint64_t now = to_context(context)->node().now_ns.load(std::memory_order_relaxed);
  // Ticks of hca_core_clock, as mlx5 gives them: one field holds the count.
  values->raw_clock.tv_sec = 0;
  values->raw_clock.tv_nsec = static_cast<long>(now);
  values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  return 0;
}

namespace {

int compat_query_device(ibv_context* context, ibv_device_attr* attributes) {
  if (context == nullptr || attributes == nullptr) return EINVAL;
  fill_device(to_context(context)->node(), *attributes);
  return 0;
}

// Programs older than the last fields of ibv_port_attr reserve that much.
constexpr std::size_t kOldPortBytes = offsetof(ibv_port_attr, port_cap_flags2);

int compat_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attributes) {
  return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attributes), kOldPortBytes);
}

}  // namespace

// What stays null here the inline functions of verbs.h answer with EOPNOTSUPP; what they call
// without looking has a refusal.
void fill_ops(Context& context) {
  context.sz = sizeof(verbs_context);
  context.query_port = query_port;
  context.query_device_ex = query_device;
  context.query_rt_values = query_rt_values;
  context.create_cq_ex = create_cq_ex;
  context.create_qp_ex = create_qp_ex;
  context.modify_qp_rate_limit = modify_qp_rate_limit;
  context.alloc_dm = alloc_dm;
  context.free_dm = free_dm;
  context.reg_dm_mr = reg_dm_mr;
  context.open_xrcd = open_xrcd;
  context.close_xrcd = close_xrcd;
  context.open_qp = open_qp;
  context.create_srq_ex = create_srq_ex;
  context.get_srq_num = get_srq_num;
  context.alloc_td = alloc_td;
  context.dealloc_td = dealloc_td;
  context.alloc_parent_domain = alloc_parent_domain;
  context.advise_mr = advise_mr;
  ibv_context& base_context = context.context;
  base_context.device = context.home;
  base_context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  base_context.cmd_fd = context.session->doorbell_fd.get();  // open, and nobody's to talk to
  base_context.async_fd = context.session->async.get();
  base_context.num_comp_vectors = 1;
  pthread_mutex_init(&base_context.mutex, nullptr);
  ibv_context_ops& ops = base_context.ops;
  ops._compat_query_device = compat_query_device;
  ops._compat_query_port = compat_query_port;
  ops.alloc_mw = alloc_mw;
  ops.bind_mw = bind_mw;
  ops.dealloc_mw = dealloc_mw;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  ops.post_srq_recv = post_srq_recv;
  ops.post_send = post_send;
  ops.post_recv = post_recv;
}

}  // namespace hca

using namespace hca;

extern "C" {

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  return compat_query_device(context, attributes);
}

int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attributes) {
  return compat_query_port(context, port, attributes);
}

int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  if (context == nullptr || gid == nullptr || port != kPort || index < 0 ||
      index >= gid_count(to_context(context)->node())) {
    errno = EINVAL;
    return -1;
  }
  *gid = port_gid(to_context(context)->node(), index);
  return 0;
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                      ibv_gid_entry* entry, std::uint32_t flags, std::size_t entry_size) {
  if (context == nullptr || entry == nullptr || flags != 0 || port != kPort ||
      entry_size < sizeof(ibv_gid_entry)) {
    return EINVAL;
  }
  const NodePage& node = to_context(context)->node();
  if (index >= static_cast<std::uint32_t>(gid_count(node))) return EINVAL;  // none is empty
  *entry = {};
  entry->gid = port_gid(node, static_cast<int>(index));
  entry->gid_index = index;
  entry->port_num = kPort;
  entry->gid_type = is_roce(node) ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB;
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t count,
                             std::uint32_t flags, std::size_t entry_size) {
  if (context == nullptr || entries == nullptr || entry_size < sizeof(ibv_gid_entry)) {
    return -EINVAL;
  }
  const int entries_count = gid_count(to_context(context)->node());
  if (count < static_cast<std::size_t>(entries_count)) return -EINVAL;
  auto* to = reinterpret_cast<std::byte*>(entries);
  for (int i = 0; i < entries_count; ++i, to += entry_size) {
    const int error = _ibv_query_gid_ex(context, kPort, static_cast<std::uint32_t>(i),
                                        reinterpret_cast<ibv_gid_entry*>(to), flags, entry_size);
    if (error != 0) return -error;
  }
  return entries_count;
}

int ibv_query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) {
  if (context == nullptr || pkey == nullptr || port != kPort || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = __builtin_bswap16(to_context(context)->node().pkey);
  return 0;
}

int ibv_get_pkey_index(ibv_context* context, std::uint8_t port, __be16 pkey) {
  __be16 ours = 0;
  if (ibv_query_pkey(context, port, 0, &ours) != 0) return -1;
  if (ours == pkey) return 0;
  errno = EINVAL;
  return -1;
}

// enum ibv_gid_type_sysfs: 0 is "IB or RoCE v1", 1 RoCE v2.
int ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, int* type) {
  ibv_gid gid;
  if (type == nullptr || ibv_query_gid(context, port, static_cast<int>(index), &gid) != 0) {
    errno = EINVAL;
    return -1;
  }
  *type = is_roce(to_context(context)->node()) ? 1 : 0;
  return 0;
}

}  // extern "C"
