# A broker in a container. Inside it must listen on all addresses, so it is given --insecure-bind: publish its ports to
# the host's loopback only, or configure TLS (docs/operations.md).
#
#   docker build -t penstock .
#   docker run --rm -v penstock-data:/data -p 127.0.0.1:9100:9100 -p 127.0.0.1:8888:8888 -p 127.0.0.1:9420:9420 penstock

FROM python:3.12-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src src
# The wheel contains the compiled modules; the compiler stays in this stage.
ENV HATCH_BUILD_HOOK_ENABLE_CUSTOM=true
RUN python -m venv /opt/penstock && /opt/penstock/bin/pip install --no-cache-dir .

FROM python:3.12-slim
COPY --from=build /opt/penstock /opt/penstock
ENV PATH=/opt/penstock/bin:$PATH
RUN penstock compile --check \
 && useradd --system --uid 10001 --no-create-home penstock \
 && install -d -o penstock -g penstock -m 0700 /data
USER penstock
VOLUME /data
EXPOSE 9100 8888 9420
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["penstock", "ping", "kokaq://127.0.0.1:9420"]
ENTRYPOINT ["penstock"]
CMD ["serve", "--data=/data", "--insecure-bind", "--phpmq=0.0.0.0:9100", "--sspq=0.0.0.0:8888", "--kokaq=0.0.0.0:9420"]
