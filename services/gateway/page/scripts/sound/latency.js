// How long sound takes from the page to the ear.

/** Seconds from the moment at which samples are handed over until they are heard. */
export function latency(context) {
  return (context.baseLatency || 0) + (context.outputLatency || 0);
}
