// The counters of a port as files, by the names that the kernel gives them below
// /sys/class/infiniband/DEVICE/ports/1, and the metric whose stored value each shows. Those of the
// IBA that nothing here can raise are there as well, since readers expect them, and stay 0.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "emu/metrics/catalog.h"

namespace emu {

struct PortFile {
  std::string_view folder;
  std::string_view name;  // no two folders have the same
  std::optional<Metric> metric;
};

inline constexpr std::array kPortFiles = {
    PortFile{"counters", "port_xmit_data", Metric::port_xmit_data},
    PortFile{"counters", "port_rcv_data", Metric::port_rcv_data},
    PortFile{"counters", "port_xmit_packets", Metric::port_xmit_packets},
    PortFile{"counters", "port_rcv_packets", Metric::port_rcv_packets},
    PortFile{"counters", "unicast_xmit_packets", Metric::unicast_xmit_packets},
    PortFile{"counters", "unicast_rcv_packets", Metric::unicast_rcv_packets},
    PortFile{"counters", "multicast_xmit_packets", Metric::multicast_xmit_packets},
    PortFile{"counters", "multicast_rcv_packets", Metric::multicast_rcv_packets},
    PortFile{"counters", "port_xmit_wait", Metric::port_xmit_wait},
    PortFile{"counters", "port_rcv_errors", Metric::port_rcv_errors},
    PortFile{"counters", "port_xmit_discards", Metric::port_xmit_discards},
    PortFile{"counters", "link_downed", Metric::port_link_downed},
    PortFile{"counters", "link_error_recovery", Metric::port_link_recovered},
    PortFile{"counters", "symbol_error", std::nullopt},
    PortFile{"counters", "port_rcv_remote_physical_errors", std::nullopt},
    PortFile{"counters", "port_rcv_switch_relay_errors", std::nullopt},
    PortFile{"counters", "port_xmit_constraint_errors", std::nullopt},
    PortFile{"counters", "port_rcv_constraint_errors", std::nullopt},
    PortFile{"counters", "local_link_integrity_errors", std::nullopt},
    PortFile{"counters", "excessive_buffer_overrun_errors", std::nullopt},
    PortFile{"counters", "VL15_dropped", std::nullopt},
    PortFile{"hw_counters", "duplicate_request", Metric::rc_duplicates},
    PortFile{"hw_counters", "out_of_sequence", Metric::rc_out_of_sequence},
    PortFile{"hw_counters", "packet_seq_err", Metric::naks_received},
    PortFile{"hw_counters", "rnr_nak_retry_err", Metric::rnr_naks_received},
    PortFile{"hw_counters", "local_ack_timeout_err", Metric::rc_timeouts},
};

}  // namespace emu
