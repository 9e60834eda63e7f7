// What the requests of programs need beside hca/host: private to hca/daemon's control.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "emu/ring/fd.h"
#include "hca/daemon/control.h"

namespace hca {

inline constexpr int kAnsweredLater = -1;  // by Control::admission

struct Control::Incoming {
  ControlRequest request;
  emu::ForeignFd fd;  // that came along, if any
};

// What hcad holds of an object that hca/host has made. Without room for it the object goes, too,
// before its pages do.
template <class Held, class Undo>
void keep(std::unordered_map<std::uint32_t, Held>& of, std::uint32_t number,
          std::type_identity_t<Held>&& what, Undo&& undo) try {
  of[number] = std::move(what);
} catch (...) {
  undo();
  throw;
}

ControlReply rate_reply(const AdmissionOutcome& outcome);
std::string describe(const AdmissionOutcome& outcome);

}  // namespace hca
