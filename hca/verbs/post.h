// What both ways to post share: slots of the send queue, credits, publication.
#pragma once

#include <cstdint>

#include "hca/verbs/objects.h"

namespace hca {

// All under the QP's send_lock.

// Posts are refused before RTS. Of a dead device they are flushed.
int may_send(const Qp& qp);
// Whether the service has it.
bool opcode_served(ibv_qp_type type, ibv_wr_opcode opcode);
// Another slot? ENOMEM if not: a slot is free when its completion was polled, or that of a later
// request of this queue.
int check_room(const Qp& qp);
// Takes the credits of a message (ACP section 4.2: a real-time post without credit fails) and the
// launch time that was set for it; fills the slot's header; moves sq_tail. ENOMEM without credit.
int finish_request(Qp& qp, SendWqe& wqe, std::uint64_t length);
// The rare part of a request whose address has a global route.
WqeExtension global_route(const ibv_ah_attr& ah);
// By which a bind says which window it means.
std::uint32_t name_of(const ibv_mw& mw);
// What a window is bound to, and its key from then on.
WqeExtension binding(std::uint32_t rkey, const ibv_mw_bind_info& info);
// Shows hcad everything up to sq_tail and rings.
void publish_sends(Qp& qp);

}  // namespace hca
