#pragma once

#include "spec/fault.h"
#include "spec/job_spec.h"
#include "spec/yaml_tree.h"

namespace trainer::spec {

// Reads the tree into `spec`, over what it holds; whatever does not fit is a fault. Fills spec.said.
void read_spec(const Node& root, JobSpec& spec, Faults& faults);

}  // namespace trainer::spec
