// Opens the device at the node's hcad: connection, version check, the pages shared from the start.
#pragma once

#include <memory>

#include "hca/verbs/objects.h"

namespace hca {

// Null: it says why on stderr and sets errno.
std::unique_ptr<Session> open_session(const char* socket_path);

}  // namespace hca
