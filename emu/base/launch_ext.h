// The small extension beside verbs that gives a work request its launch time. A program finds the
// calls with dlsym and does software pacing where they are absent (real hardware).
#pragma once

#include <cstdint>

struct ibv_qp;
struct ibv_context;

extern "C" {
// The next work request posted on `qp` leaves the HCA at emulated time `launch_ns`; its packets are
// spread evenly over `span_ns`. 0, 0 means: as soon as possible. Returns 0 or an errno.
using FlitnetSetLaunch = int(ibv_qp* qp, std::uint64_t launch_ns, std::uint32_t span_ns);
// Emulated time now, in nanoseconds; the clock of completion timestamps.
using FlitnetNow = std::uint64_t(ibv_context* context);
// Who refused what ibv_modify_qp_rate_limit asked for on `qp` last: the number of the router, -1 if
// nothing was refused, -2 if it was the HCA (its own link has too little left).
using FlitnetRejectedBy = int(ibv_qp* qp);
}

inline constexpr char kFlitnetSetLaunchName[] = "flitnet_set_launch";
inline constexpr char kFlitnetNowName[] = "flitnet_now";
inline constexpr char kFlitnetRejectedByName[] = "flitnet_rejected_by";
