// What the requests of programs need beside hca/host: private to hca/daemon's control.
#pragma once

#include <string>

#include "emu/ring/fd.h"
#include "hca/daemon/control.h"

namespace hca {

inline constexpr int kAnsweredLater = -1;  // by Control::admission

struct Control::Incoming {
  ControlRequest request;
  emu::UniqueFd fd;  // that came along, if any
};

ControlReply rate_reply(const AdmissionOutcome& outcome);
std::string describe(const AdmissionOutcome& outcome);

}  // namespace hca
