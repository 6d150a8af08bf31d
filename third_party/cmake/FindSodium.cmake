# Finds libsodium, the static one if there is one: then the executable runs on nodes that have none. Target: sodium.
find_path(SODIUM_INCLUDE_DIR sodium.h)
find_library(SODIUM_LIBRARY NAMES libsodium.a sodium)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Sodium REQUIRED_VARS SODIUM_LIBRARY SODIUM_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or install libsodium (libsodium-dev)")
if(Sodium_FOUND AND NOT TARGET sodium)
  add_library(sodium UNKNOWN IMPORTED)
  set_target_properties(sodium PROPERTIES IMPORTED_LOCATION "${SODIUM_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${SODIUM_INCLUDE_DIR}")
endif()
