// Ids that wait for a time: what each wants then is timer_fired's business. In: times that ids wait
// for; time. Out: the ids whose time has come, and no visit to any other: a node has many thousand
// that wait for nothing, and its packets wait while it looks.
#include "hca/cm/state.h"

namespace hca {

void wait_until(CmState& s, Id& id, emu::EmuNs at) {
  if (id.again_at != emu::kNever) s.timers.erase({id.again_at, id.number});
  id.again_at = at;
  if (at != emu::kNever) s.timers.emplace(at, id.number);
}

void fire_timers(CmState& s) {
  // What one of them waits for next lies ahead: this ends.
  while (!s.timers.empty() && s.timers.begin()->first <= s.now_ns) {
    Id& id = s.ids.at(s.timers.begin()->second);
    wait_until(s, id, emu::kNever);
    timer_fired(s, id);
  }
}

}  // namespace hca
