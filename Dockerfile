# One image for all services; the command says which.
FROM python:3.12-slim AS build
COPY . /src
RUN python -m venv /opt/nodewarden && /opt/nodewarden/bin/pip install --no-cache-dir "/src[s3]"

FROM python:3.12-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/nodewarden --create-home nodewarden
# What volumes are mounted on belongs to whom the image says.
RUN install --directory --owner=nodewarden --group=nodewarden /archive /shared
COPY --from=build /opt/nodewarden /opt/nodewarden
ENV PATH=/opt/nodewarden/bin:$PATH PYTHONUNBUFFERED=1
USER nodewarden
WORKDIR /var/lib/nodewarden
STOPSIGNAL SIGTERM
ENTRYPOINT ["nodewarden"]
CMD ["--help"]
