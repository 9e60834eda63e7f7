// A QP's attributes as programs give them and as hcad has them (hca/abi/attributes.h).
#pragma once

#include <infiniband/verbs.h>

#include "hca/abi/attributes.h"

namespace hca {

QpAttributes to_attributes(const ibv_qp_attr& from);
void from_attributes(const QpAttributes& from, ibv_qp_attr& to);

}  // namespace hca
